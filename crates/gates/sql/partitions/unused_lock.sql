-- Locks a partition that is still unused. The transaction has locked the domain. $1: domain; $2: partition; $3: since when.
-- At most one row: layout, state. None if somebody is at it.
SELECT layout, state
FROM tidegate.gate_partitions
WHERE domain = $1 AND part = $2 AND used_at < $3 AND leases = 0 AND places = 0
FOR UPDATE SKIP LOCKED
