-- Locks all partitions of a domain until the end of the transaction and says whether one of them holds or waits for
-- something. $1: domain. One boolean.
WITH locked AS MATERIALIZED (
    SELECT leases, places FROM tidegate.gate_partitions WHERE domain = $1 ORDER BY part FOR UPDATE
)
SELECT EXISTS (SELECT FROM locked WHERE leases > 0 OR places > 0)
