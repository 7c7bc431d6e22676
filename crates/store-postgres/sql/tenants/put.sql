-- Writes tenants. Params: numbers, names. Index: primary key.
INSERT INTO tidegate.tenants (id, name) SELECT * FROM unnest($1::integer[], $2::text[])
