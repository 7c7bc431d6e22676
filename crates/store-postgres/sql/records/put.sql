-- Keeps a record in place of one with the same key. Params: shelf, key, body, expires. Index: primary key.
INSERT INTO tidegate.records (shelf, key, body, expires) VALUES ($1, $2, $3, $4)
ON CONFLICT (shelf, key) DO UPDATE SET body = excluded.body, expires = excluded.expires
