-- Forgets all partitions of a domain. $1: domain.
DELETE FROM tidegate.gate_partitions WHERE domain = $1
