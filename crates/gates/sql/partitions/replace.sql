-- Puts a new state in the place of one that cannot be read, unless it has changed since. $1: domain; $2: partition;
-- $3: mark of the unreadable state; $4: new mark; $5: layout; $6: state; $7: time.
UPDATE tidegate.gate_partitions
SET marks = ARRAY[$4::bigint], layout = $5, state = $6, used_at = $7, due_at = NULL,
    keys = 0, leases = 0, quarantined = 0, places = 0
WHERE domain = $1 AND part = $2 AND marks[1] = $3
