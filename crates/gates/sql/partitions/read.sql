-- States of a domain's partitions in order, after one of them, that hold or wait for something; nothing is locked.
-- $1: domain; $2: the last one seen, or null; $3: how many at most. Rows: part, layout, state. By the primary key.
SELECT part, layout, state
FROM tidegate.gate_partitions
WHERE domain = $1 AND ($2::text IS NULL OR part > $2) AND (leases > 0 OR places > 0)
ORDER BY part
LIMIT $3
