-- Flow records in ClickHouse. @PLACE@ is the folder below user_files; for an object store s3('URL/**/*.parquet') takes the
-- place of file(...). For many sensors, load a MergeTree: CREATE TABLE ... ENGINE = MergeTree ORDER BY
-- (flowStartNanoseconds) TTL toDateTime(flowStartNanoseconds) + INTERVAL 90 DAY AS SELECT * FROM flows.

-- define
CREATE VIEW flows AS SELECT *, _path AS path FROM file('@PLACE@/**/*.parquet', Parquet);

-- sum
SELECT count() AS flows, sum(packetDeltaCount + reversePacketDeltaCount) AS packets,
    sum(octetDeltaCount + reverseOctetDeltaCount) AS octets
FROM flows WHERE natEvent IS NULL;

-- top hosts
SELECT coalesce(IPv4NumToString(peer.1), IPv6NumToString(peer.2)) AS host, count() AS flows, sum(packets) AS packets,
    sum(octets) AS octets
FROM (
    SELECT arrayJoin([(sourceIPv4Address, sourceIPv6Address), (destinationIPv4Address, destinationIPv6Address)]) AS peer,
        packetDeltaCount + reversePacketDeltaCount AS packets, octetDeltaCount + reverseOctetDeltaCount AS octets
    FROM flows WHERE natEvent IS NULL)
GROUP BY peer ORDER BY octets DESC, peer.1 NULLS LAST, peer.2 LIMIT 10;

-- top ports
SELECT protocolIdentifier AS protocol, destinationTransportPort AS port, count() AS flows,
    sum(packetDeltaCount + reversePacketDeltaCount) AS packets, sum(octetDeltaCount + reverseOctetDeltaCount) AS octets
FROM flows WHERE natEvent IS NULL GROUP BY protocol, port ORDER BY octets DESC, protocol, port LIMIT 10;

-- top sensors
SELECT extract(path, 'sensor=([^/]*)') AS sensor, count() AS flows,
    sum(packetDeltaCount + reversePacketDeltaCount) AS packets, sum(octetDeltaCount + reverseOctetDeltaCount) AS octets
FROM flows WHERE natEvent IS NULL GROUP BY sensor ORDER BY octets DESC, sensor LIMIT 10;
