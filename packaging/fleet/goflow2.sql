-- Flow records by IPFIX in ClickHouse, through goflow2 and Kafka. @BROKERS@: addresses of Kafka brokers. @TOPIC@: the
-- topic.
--   goflow2 -listen netflow://:4739 -transport kafka -transport.kafka.brokers @BROKERS@ -transport.kafka.topic @TOPIC@
--   linerate capture -i eth0 --flows 'ipfix://COLLECTOR?uniflow'
-- goflow2 does not support biflows: each direction is a record. IPv4 addresses are ::ffff:a.b.c.d.

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
    octets UInt64 CODEC(ZSTD)
)
ENGINE = MergeTree PARTITION BY toDate(start) ORDER BY start TTL toDateTime(start) + INTERVAL 90 DAY;
CREATE TABLE flows_queue
(
    sampler_address String, time_flow_start_ns UInt64, time_flow_end_ns UInt64, sequence_num UInt32, src_addr String,
    dst_addr String, proto String, src_port UInt16, dst_port UInt16, packets UInt64, bytes UInt64
)
ENGINE = Kafka SETTINGS kafka_broker_list = '@BROKERS@', kafka_topic_list = '@TOPIC@',
    kafka_group_name = 'clickhouse', kafka_format = 'JSONEachRow', input_format_skip_unknown_fields = 1;
CREATE MATERIALIZED VIEW flows_consumer TO flows AS
SELECT sampler_address AS sensor, fromUnixTimestamp64Nano(time_flow_start_ns::Int64, 'UTC') AS start,
    fromUnixTimestamp64Nano(time_flow_end_ns::Int64, 'UTC') AS end, sequence_num AS sequence,
    toIPv6(src_addr) AS source, toIPv6(dst_addr) AS destination, proto AS protocol, src_port AS source_port,
    dst_port AS destination_port, packets, bytes AS octets
FROM flows_queue;

-- sum
SELECT count() AS flows, sum(packets) AS packets, sum(octets) AS octets FROM flows;

-- top hosts
SELECT host, count() AS flows, sum(packets) AS packets, sum(octets) AS octets
FROM (SELECT arrayJoin([source, destination]) AS host, packets, octets FROM flows)
GROUP BY host ORDER BY octets DESC, host LIMIT 10;

-- top ports
SELECT protocol, destination_port AS port, count() AS flows, sum(packets) AS packets, sum(octets) AS octets
FROM flows GROUP BY protocol, port ORDER BY octets DESC, protocol, port LIMIT 10;

-- top sensors
SELECT sensor, count() AS flows, sum(packets) AS packets, sum(octets) AS octets
FROM flows GROUP BY sensor ORDER BY octets DESC, sensor LIMIT 10;

-- directions
SELECT source, destination, protocol, source_port, destination_port, sum(packets) AS packets, sum(octets) AS octets
FROM flows GROUP BY source, destination, protocol, source_port, destination_port;
