-- Flow records in Spark 4. @LOCATION@ is the folder, or s3a://BUCKET/PREFIX (spark-submit --packages
-- org.apache.hadoop:hadoop-aws:VERSION with the version of Spark's Hadoop; spark.hadoop.fs.s3a.endpoint for a store
-- of your own). Times are numbers: nanoseconds since 1970.

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
    SELECT inline(array(
            struct(sourceIPv4Address AS a4, sourceIPv6Address AS a6),
            struct(destinationIPv4Address AS a4, destinationIPv6Address AS a6))),
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
