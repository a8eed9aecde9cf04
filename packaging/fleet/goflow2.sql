-- Flow records by IPFIX in ClickHouse, through goflow2 and Kafka. @BROKERS@: addresses of Kafka brokers. @TOPIC@: the
-- topic.
--   goflow2 -listen netflow://:4739 -mapping goflow2.yaml -transport kafka -transport.kafka.brokers @BROKERS@
--       -transport.kafka.topic @TOPIC@
--   linerate capture -i eth0 --flows 'ipfix://COLLECTOR?uniflow'
--   linerate forward run -i eth1 -i eth2 --flows 'ipfix://COLLECTOR?uniflow'
-- goflow2 does not support biflows: each direction is a record. IPv4 addresses are ::ffff:a.b.c.d. A record with a
-- nat_event is no flow.

-- define
CREATE TABLE flows
(
    sensor LowCardinality(String),
    start DateTime64(9, 'UTC') CODEC(Delta, ZSTD),
    end DateTime64(9, 'UTC') CODEC(Delta, ZSTD),
    sequence UInt32 CODEC(ZSTD),
    source IPv6 CODEC(ZSTD),
    destination IPv6 CODEC(ZSTD),
    protocol LowCardinality(String),
    source_port UInt16 CODEC(ZSTD),
    destination_port UInt16 CODEC(ZSTD),
    packets UInt64 CODEC(ZSTD),
    octets UInt64 CODEC(ZSTD),
    translated_source IPv6 CODEC(ZSTD),
    translated_source_port UInt16 CODEC(ZSTD),
    nat_event UInt8 CODEC(ZSTD)
)
ENGINE = MergeTree PARTITION BY toDate(start) ORDER BY start TTL toDateTime(start) + INTERVAL 90 DAY;
CREATE TABLE flows_queue
(
    sampler_address String, time_flow_start_ns UInt64, time_flow_end_ns UInt64, sequence_num UInt32, src_addr String,
    dst_addr String, proto String, src_port UInt16, dst_port UInt16, packets UInt64, bytes UInt64,
    post_nat_src_addr String, post_nat_src_port UInt16, nat_event UInt8
)
ENGINE = Kafka SETTINGS kafka_broker_list = '@BROKERS@', kafka_topic_list = '@TOPIC@',
    kafka_group_name = 'clickhouse', kafka_format = 'JSONEachRow', input_format_skip_unknown_fields = 1;
CREATE MATERIALIZED VIEW flows_consumer TO flows AS
SELECT sampler_address AS sensor, fromUnixTimestamp64Nano(time_flow_start_ns::Int64, 'UTC') AS start,
    fromUnixTimestamp64Nano(time_flow_end_ns::Int64, 'UTC') AS end, sequence_num AS sequence,
    toIPv6(src_addr) AS source, toIPv6(dst_addr) AS destination, proto AS protocol, src_port AS source_port,
    dst_port AS destination_port, packets, bytes AS octets,
    toIPv6OrDefault(post_nat_src_addr) AS translated_source, post_nat_src_port AS translated_source_port, nat_event
FROM flows_queue;

-- sum
SELECT count() AS flows, sum(packets) AS packets, sum(octets) AS octets FROM flows
WHERE nat_event = 0;

-- top hosts
SELECT host, count() AS flows, sum(packets) AS packets, sum(octets) AS octets
FROM (SELECT arrayJoin([source, destination]) AS host, packets, octets FROM flows WHERE nat_event = 0)
GROUP BY host ORDER BY octets DESC, host LIMIT 10;

-- top ports
SELECT protocol, destination_port AS port, count() AS flows, sum(packets) AS packets, sum(octets) AS octets
FROM flows WHERE nat_event = 0 GROUP BY protocol, port ORDER BY octets DESC, protocol, port LIMIT 10;

-- top sensors
SELECT sensor, count() AS flows, sum(packets) AS packets, sum(octets) AS octets
FROM flows WHERE nat_event = 0 GROUP BY sensor ORDER BY octets DESC, sensor LIMIT 10;

-- directions
SELECT source, destination, protocol, source_port, destination_port, sum(packets) AS packets, sum(octets) AS octets
FROM flows WHERE nat_event = 0 GROUP BY source, destination, protocol, source_port, destination_port;

-- translations
SELECT protocol, source, source_port, destination, destination_port, translated_source, translated_source_port,
    min(start) AS first, max(end) AS last, countIf(nat_event IN (4, 6)) AS created,
    countIf(nat_event IN (5, 7)) AS deleted, sum(packets) AS packets, sum(octets) AS octets
FROM flows
WHERE translated_source <> toIPv6('::') AND (translated_source, translated_source_port) <> (source, source_port)
GROUP BY protocol, source, source_port, destination, destination_port, translated_source, translated_source_port;
