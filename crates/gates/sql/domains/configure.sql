-- New settings for a domain that the transaction has locked. $1: domain; $2: settings as JSON text; $3: whether its
-- partitions were dropped with it.
WITH changed AS (
    UPDATE tidegate.gate_domains
    SET version = greatest(version + 1, c.now),
        layout = greatest(layout + 1, c.now),
        used = used AND NOT $3
    FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now) AS c
    WHERE domain = $1
    RETURNING domain, layout
)
INSERT INTO tidegate.gate_sets (domain, layout, gates)
SELECT domain, layout, $2 FROM changed
