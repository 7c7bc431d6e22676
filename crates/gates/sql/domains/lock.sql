-- Locks a domain until the end of the transaction: its settings do not change, and no partition comes or goes.
-- $1: domain. At most one row: version, layout, whether it was used, since when state is missing, the clock.
SELECT version, layout, used, lost_at, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
FROM tidegate.gate_domains
WHERE domain = $1
FOR UPDATE
