-- Keeps what others need to know of jobs. Params: numbers, bodies, tenants. Index: primary key.
INSERT INTO tidegate.kept (seq, body, tenant) SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[])
ON CONFLICT (seq) DO UPDATE SET body = excluded.body, tenant = excluded.tenant
