-- Removes tenants. Params: numbers. Index: primary key.
DELETE FROM tidegate.tenants WHERE id = ANY($1)
