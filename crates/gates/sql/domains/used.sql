-- Notes that a domain has a partition, and when state was found missing. The transaction has locked it. $1: domain;
-- $2: when, or null.
UPDATE tidegate.gate_domains SET used = true, lost_at = coalesce($2, lost_at) WHERE domain = $1
