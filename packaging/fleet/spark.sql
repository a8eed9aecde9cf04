-- Flow records in Spark 4. @LOCATION@ is the folder, or s3a://BUCKET/PREFIX (spark-submit --packages
-- org.apache.hadoop:hadoop-aws:VERSION with the version of Spark's Hadoop; SET fs.s3a.access.key and
-- fs.s3a.secret.key; for a store of your own also fs.s3a.endpoint and fs.s3a.path.style.access).
-- Times are numbers: nanoseconds since 1970.

-- define
SET spark.sql.legacy.parquet.nanosAsLong = true;
CREATE OR REPLACE TEMPORARY FUNCTION v4(a BIGINT) RETURNS STRING
    RETURN concat_ws('.', shiftright(a, 24), shiftright(a, 16) & 255, shiftright(a, 8) & 255, a & 255);
CREATE OR REPLACE TEMPORARY FUNCTION v6(a BINARY) RETURNS STRING
    RETURN rtrim(':', regexp_replace(lower(hex(a)), '(....)', '$1:'));
CREATE OR REPLACE TEMPORARY VIEW flows USING parquet OPTIONS (path '@LOCATION@');

-- sum
SELECT count(*) AS flows, sum(packetDeltaCount + reversePacketDeltaCount) AS packets,
    sum(octetDeltaCount + reverseOctetDeltaCount) AS octets
FROM flows WHERE natEvent IS NULL;

-- top hosts
SELECT CASE WHEN a4 IS NULL THEN v6(a6) ELSE v4(a4) END AS host, count(*) AS flows, sum(packets) AS packets,
    sum(octets) AS octets
FROM (
    SELECT inline(array_distinct(array(
            struct(sourceIPv4Address AS a4, sourceIPv6Address AS a6),
            struct(destinationIPv4Address AS a4, destinationIPv6Address AS a6)))),
        packetDeltaCount + reversePacketDeltaCount AS packets, octetDeltaCount + reverseOctetDeltaCount AS octets
    FROM flows WHERE natEvent IS NULL)
GROUP BY a4, a6 ORDER BY octets DESC, a4 NULLS LAST, a6 LIMIT 10;

-- top ports
SELECT protocolIdentifier AS protocol, destinationTransportPort AS port, count(*) AS flows,
    sum(packetDeltaCount + reversePacketDeltaCount) AS packets, sum(octetDeltaCount + reverseOctetDeltaCount) AS octets
FROM flows WHERE natEvent IS NULL GROUP BY ALL ORDER BY octets DESC, protocol, port LIMIT 10;

-- top sensors
SELECT sensor, count(*) AS flows, sum(packetDeltaCount + reversePacketDeltaCount) AS packets,
    sum(octetDeltaCount + reverseOctetDeltaCount) AS octets
FROM flows WHERE natEvent IS NULL GROUP BY sensor ORDER BY octets DESC, sensor LIMIT 10;

-- directions
SELECT CASE WHEN s4 IS NULL THEN v6(s6) ELSE v4(s4) END AS source,
    CASE WHEN d4 IS NULL THEN v6(d6) ELSE v4(d4) END AS destination, protocol, source_port, destination_port,
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
    CASE WHEN sourceIPv4Address IS NULL THEN v6(sourceIPv6Address) ELSE v4(sourceIPv4Address) END AS source,
    sourceTransportPort AS source_port,
    CASE WHEN destinationIPv4Address IS NULL THEN v6(destinationIPv6Address) ELSE v4(destinationIPv4Address) END
        AS destination,
    destinationTransportPort AS destination_port,
    CASE WHEN postNATSourceIPv4Address IS NULL THEN v6(postNATSourceIPv6Address) ELSE v4(postNATSourceIPv4Address) END
        AS translated_source,
    postNAPTSourceTransportPort AS translated_source_port, min(flowStartNanoseconds) AS first,
    max(flowEndNanoseconds) AS last, count_if(natEvent IN (4, 6)) AS created,
    count_if(natEvent IN (5, 7)) AS deleted, sum(packetDeltaCount) AS packets, sum(octetDeltaCount) AS octets
FROM flows
WHERE postNATSourceIPv4Address <> sourceIPv4Address OR postNATSourceIPv6Address <> sourceIPv6Address
    OR postNAPTSourceTransportPort <> sourceTransportPort
GROUP BY protocolIdentifier, sourceIPv4Address, sourceIPv6Address, sourceTransportPort, destinationIPv4Address,
    destinationIPv6Address, destinationTransportPort, postNATSourceIPv4Address, postNATSourceIPv6Address,
    postNAPTSourceTransportPort;
