-- Forgets what was kept of a tenant's jobs. Params: tenant, limit. Index: kept_of_tenant, primary key.
DELETE FROM tidegate.kept
WHERE seq = ANY (ARRAY(SELECT k.seq FROM tidegate.kept AS k WHERE k.tenant = $1 LIMIT $2))
