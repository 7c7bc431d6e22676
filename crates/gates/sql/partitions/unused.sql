-- Partitions that nobody has used since then and that hold nothing, in order, after one of them. $1, $2: the last one
-- seen; $3: since when; $4: how many at most. Rows: domain, part. By the primary key; run every few minutes.
SELECT domain, part
FROM tidegate.gate_partitions
WHERE (domain, part) > ($1, $2) AND used_at < $3 AND leases = 0 AND places = 0
ORDER BY domain, part
LIMIT $4
