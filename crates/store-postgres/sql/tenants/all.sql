-- All tenants. No params.
SELECT id, name FROM tidegate.tenants
