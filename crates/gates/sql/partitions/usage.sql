-- How much state there is, per domain. $1: one domain, or null for all. Rows: domain, partitions, keys, leases, of these
-- in quarantine, places, bytes; also for domains without state.
SELECT d.domain, count(p.part), coalesce(sum(p.keys), 0)::bigint, coalesce(sum(p.leases), 0)::bigint,
    coalesce(sum(p.quarantined), 0)::bigint, coalesce(sum(p.places), 0)::bigint,
    coalesce(sum(octet_length(p.state)), 0)::bigint
FROM tidegate.gate_domains AS d
LEFT JOIN tidegate.gate_partitions AS p ON p.domain = d.domain
WHERE $1::text IS NULL OR d.domain = $1
GROUP BY d.domain
ORDER BY d.domain
