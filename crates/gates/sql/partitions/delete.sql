-- Forgets a partition that the transaction has locked, and notes whether that was the domain's last one.
-- $1: domain; $2: partition.
WITH gone AS (DELETE FROM tidegate.gate_partitions WHERE domain = $1 AND part = $2)
UPDATE tidegate.gate_domains
SET used = EXISTS (SELECT FROM tidegate.gate_partitions WHERE domain = $1 AND part <> $2)
WHERE domain = $1
