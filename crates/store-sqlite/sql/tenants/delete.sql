-- Removes a tenant, if it exists. Params: id. Index: primary key.
DELETE FROM tenants WHERE id = ?1
