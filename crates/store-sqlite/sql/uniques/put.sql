-- Gives a key to a job, whoever held it. Params: kind, key, seq, id (16 bytes), expires. Index: primary key.
INSERT INTO uniques (kind, key, seq, id, expires) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (kind, key) DO UPDATE SET seq = ?3, id = ?4, expires = ?5
