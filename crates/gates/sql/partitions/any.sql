-- Whether a domain has partitions. $1: domain. One boolean.
SELECT EXISTS (SELECT FROM tidegate.gate_partitions WHERE domain = $1)
