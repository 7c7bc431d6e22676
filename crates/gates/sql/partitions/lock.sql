-- Locks a partition until the end of the transaction. $1: domain; $2: partition; $3: mark of the state that the caller has.
-- At most one row: marks, layout, and the state unless the caller has it. By the primary key.
SELECT marks, layout, CASE WHEN marks[1] = $3 THEN NULL ELSE state END AS state
FROM tidegate.gate_partitions
WHERE domain = $1 AND part = $2
FOR UPDATE
