-- Keeps what others need to know of jobs. Params: numbers, bodies. Index: primary key.
INSERT INTO tidegate.kept (seq, body) SELECT * FROM unnest($1::bigint[], $2::text[])
ON CONFLICT (seq) DO UPDATE SET body = excluded.body
