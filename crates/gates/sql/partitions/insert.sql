-- Makes a partition, unless somebody else did. The transaction has locked the domain. $1: domain; $2: partition; $3: mark;
-- $4: layout; $5: state; $6: time.
INSERT INTO tidegate.gate_partitions (domain, part, marks, layout, state, used_at)
VALUES ($1, $2, ARRAY[$3::bigint], $4, $5, $6)
ON CONFLICT (domain, part) DO NOTHING
