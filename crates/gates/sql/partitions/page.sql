-- Names of a domain's partitions in order, after one of them. $1: domain; $2: the last one seen, or null; $3: how many at most;
-- $4: only those in which something has lapsed by then, or null for all. By the primary key.
SELECT part
FROM tidegate.gate_partitions
WHERE domain = $1 AND ($2::text IS NULL OR part > $2) AND ($4::bigint IS NULL OR due_at <= $4)
ORDER BY part
LIMIT $3
