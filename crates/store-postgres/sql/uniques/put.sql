-- Gives keys to jobs, whoever held them. Params: one array per column. Index: primary key.
INSERT INTO tidegate.uniques (kind, key, seq, id, expires)
SELECT * FROM unnest($1::integer[], $2::text[], $3::bigint[], $4::uuid[], $5::bigint[])
ON CONFLICT (kind, key) DO UPDATE SET seq = excluded.seq, id = excluded.id, expires = excluded.expires
