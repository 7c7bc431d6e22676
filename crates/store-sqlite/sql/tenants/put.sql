-- Writes a tenant. Fails if another has this name. Params: id, name. Index: primary key.
INSERT INTO tenants (id, name) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET name = ?2
