-- Flow records in DuckDB. @LOCATION@ is the folder, or s3://BUCKET/PREFIX. For an object store:
--   INSTALL httpfs; LOAD httpfs; CREATE SECRET (TYPE s3, KEY_ID 'KEY', SECRET 'SECRET', REGION 'REGION');
-- A store of your own also needs ENDPOINT 'HOST:PORT', URL_STYLE 'path', and USE_SSL false for http.

-- define
CREATE OR REPLACE MACRO v4(a) AS
    CASE WHEN a IS NOT NULL THEN concat_ws('.', a >> 24, (a >> 16) & 255, (a >> 8) & 255, a & 255) END;
CREATE OR REPLACE MACRO v6(a) AS rtrim(regexp_replace(lower(hex(a)), '(....)', '\1:', 'g'), ':');
CREATE OR REPLACE VIEW flows AS
    SELECT * FROM read_parquet('@LOCATION@/**/*.parquet', hive_partitioning = true, union_by_name = true);

-- sum
SELECT count(*) AS flows, sum(packetDeltaCount + reversePacketDeltaCount) AS packets,
    sum(octetDeltaCount + reverseOctetDeltaCount) AS octets
FROM flows WHERE natEvent IS NULL;

-- top hosts
SELECT coalesce(v4(a4), v6(a6)) AS host, count(*) AS flows, sum(packets) AS packets, sum(octets) AS octets
FROM (
    SELECT unnest(list_distinct([
        {'a4': sourceIPv4Address, 'a6': sourceIPv6Address},
        {'a4': destinationIPv4Address, 'a6': destinationIPv6Address}]), recursive := true),
        packetDeltaCount + reversePacketDeltaCount AS packets, octetDeltaCount + reverseOctetDeltaCount AS octets
    FROM flows WHERE natEvent IS NULL)
GROUP BY a4, a6 ORDER BY octets DESC, a4, a6 LIMIT 10;

-- top ports
SELECT protocolIdentifier AS protocol, destinationTransportPort AS port, count(*) AS flows,
    sum(packetDeltaCount + reversePacketDeltaCount) AS packets, sum(octetDeltaCount + reverseOctetDeltaCount) AS octets
FROM flows WHERE natEvent IS NULL GROUP BY ALL ORDER BY octets DESC, protocol, port LIMIT 10;

-- top sensors
SELECT sensor, count(*) AS flows, sum(packetDeltaCount + reversePacketDeltaCount) AS packets,
    sum(octetDeltaCount + reverseOctetDeltaCount) AS octets
FROM flows WHERE natEvent IS NULL GROUP BY sensor ORDER BY octets DESC, sensor LIMIT 10;

-- directions
SELECT coalesce(v4(s4), v6(s6)) AS source, coalesce(v4(d4), v6(d6)) AS destination, protocol, source_port,
    destination_port, sum(packets) AS packets, sum(octets) AS octets
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
    coalesce(v4(sourceIPv4Address), v6(sourceIPv6Address)) AS source, sourceTransportPort AS source_port,
    coalesce(v4(destinationIPv4Address), v6(destinationIPv6Address)) AS destination,
    destinationTransportPort AS destination_port,
    coalesce(v4(postNATSourceIPv4Address), v6(postNATSourceIPv6Address)) AS translated_source,
    postNAPTSourceTransportPort AS translated_source_port, CAST(min(flowStartNanoseconds) AS VARCHAR) AS first,
    CAST(max(flowEndNanoseconds) AS VARCHAR) AS last, count(*) FILTER (natEvent IN (4, 6)) AS created,
    count(*) FILTER (natEvent IN (5, 7)) AS deleted, sum(packetDeltaCount) AS packets, sum(octetDeltaCount) AS octets
FROM flows
WHERE postNATSourceIPv4Address <> sourceIPv4Address OR postNATSourceIPv6Address <> sourceIPv6Address
    OR postNAPTSourceTransportPort <> sourceTransportPort
GROUP BY protocolIdentifier, sourceIPv4Address, sourceIPv6Address, sourceTransportPort, destinationIPv4Address,
    destinationIPv6Address, destinationTransportPort, postNATSourceIPv4Address, postNATSourceIPv6Address,
    postNAPTSourceTransportPort;
