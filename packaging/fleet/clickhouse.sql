-- Flow records in ClickHouse. @LOCATION@ is the folder below user_files. For an object store, replace file(...) by
-- s3('https://HOST/BUCKET/PREFIX/**/*.parquet', 'KEY', 'SECRET', 'Parquet'). For many sensors, load a MergeTree:
-- CREATE TABLE ... ENGINE = MergeTree ORDER BY (flowStartNanoseconds)
-- TTL toDateTime(flowStartNanoseconds) + INTERVAL 90 DAY AS SELECT * FROM flows.

-- define
CREATE VIEW flows AS SELECT *, _path AS path FROM file('@LOCATION@/**/*.parquet', Parquet);

-- sum
SELECT count() AS flows, sum(packetDeltaCount + reversePacketDeltaCount) AS packets,
    sum(octetDeltaCount + reverseOctetDeltaCount) AS octets
FROM flows WHERE natEvent IS NULL;

-- top hosts
SELECT coalesce(IPv4NumToString(peer.1), IPv6NumToString(peer.2)) AS host, count() AS flows, sum(packets) AS packets,
    sum(octets) AS octets
FROM (
    SELECT arrayJoin(arrayDistinct([
            (sourceIPv4Address, sourceIPv6Address), (destinationIPv4Address, destinationIPv6Address)])) AS peer,
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

-- directions
SELECT coalesce(IPv4NumToString(s4), IPv6NumToString(s6)) AS source,
    coalesce(IPv4NumToString(d4), IPv6NumToString(d6)) AS destination, protocol, source_port, destination_port,
    sum(packets) AS packets, sum(octets) AS octets
FROM (
    SELECT sourceIPv4Address AS s4, sourceIPv6Address AS s6, destinationIPv4Address AS d4, destinationIPv6Address AS d6,
        protocolIdentifier AS protocol, sourceTransportPort AS source_port,
        destinationTransportPort AS destination_port, packetDeltaCount AS packets, octetDeltaCount AS octets
    FROM flows WHERE natEvent IS NULL
    UNION ALL
    SELECT destinationIPv4Address, destinationIPv6Address, sourceIPv4Address, sourceIPv6Address,
        protocolIdentifier, destinationTransportPort, sourceTransportPort, reversePacketDeltaCount,
        reverseOctetDeltaCount
    FROM flows WHERE natEvent IS NULL AND reversePacketDeltaCount > 0)
GROUP BY s4, s6, d4, d6, protocol, source_port, destination_port;

-- translations
SELECT protocolIdentifier AS protocol,
    coalesce(IPv4NumToString(sourceIPv4Address), IPv6NumToString(sourceIPv6Address)) AS source,
    sourceTransportPort AS source_port,
    coalesce(IPv4NumToString(destinationIPv4Address), IPv6NumToString(destinationIPv6Address)) AS destination,
    destinationTransportPort AS destination_port,
    coalesce(IPv4NumToString(postNATSourceIPv4Address), IPv6NumToString(postNATSourceIPv6Address)) AS translated_source,
    postNAPTSourceTransportPort AS translated_source_port, min(flowStartNanoseconds) AS first,
    max(flowEndNanoseconds) AS last, countIf(natEvent IN (4, 6)) AS created,
    countIf(natEvent IN (5, 7)) AS deleted, sum(packetDeltaCount) AS packets, sum(octetDeltaCount) AS octets
FROM flows
WHERE postNATSourceIPv4Address <> sourceIPv4Address OR postNATSourceIPv6Address <> sourceIPv6Address
    OR postNAPTSourceTransportPort <> sourceTransportPort
GROUP BY protocolIdentifier, sourceIPv4Address, sourceIPv6Address, sourceTransportPort, destinationIPv4Address,
    destinationIPv6Address, destinationTransportPort, postNATSourceIPv4Address, postNATSourceIPv6Address,
    postNAPTSourceTransportPort;
