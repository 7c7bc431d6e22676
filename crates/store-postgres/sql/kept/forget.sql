-- Forgets what was kept of a tenant's jobs. Params: tenant, limit. Index: kept_of_tenant.
DELETE FROM tidegate.kept WHERE seq IN (SELECT seq FROM tidegate.kept WHERE tenant = $1 LIMIT $2)
