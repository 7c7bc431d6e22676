-- All tenants, in order of their numbers. No params. Index: primary key.
SELECT id, name FROM tenants ORDER BY id
