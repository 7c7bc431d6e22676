-- Version of a domain and the server's clock, after whatever the transaction has waited for: a statement of its own, so
-- that it sees what was committed meanwhile. $1: domain. At most one row. By the primary key.
SELECT version, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
FROM tidegate.gate_domains
WHERE domain = $1
