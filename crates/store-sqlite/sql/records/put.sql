-- Keeps a record, in place of one with the same key. ?1 shelf, ?2 key, ?3 body, ?4 expires.
INSERT INTO records (shelf, key, body, expires) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (shelf, key) DO UPDATE SET body = excluded.body, expires = excluded.expires
