-- Makes a domain, unless somebody else did. Numbers are times, so that they differ from those of a domain of that name
-- that was lost. $1: domain; $2: its settings as JSON text; $3: whether it was lost before.
-- One row with its layout if it was made.
WITH made AS (
    INSERT INTO tidegate.gate_domains (domain, version, layout, lost_at)
    SELECT $1, c.now, c.now, CASE WHEN $3 THEN c.now END
    FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now) AS c
    ON CONFLICT (domain) DO NOTHING
    RETURNING domain, layout
)
INSERT INTO tidegate.gate_sets (domain, layout, gates)
SELECT domain, layout, $2 FROM made
RETURNING layout
