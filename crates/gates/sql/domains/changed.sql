-- Tells everybody to read a domain's switches again. $1: domain.
UPDATE tidegate.gate_domains
SET version = greatest(version + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
WHERE domain = $1
