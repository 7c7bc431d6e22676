-- Writes one number of the store itself. Params: name, value. Index: primary key.
INSERT INTO meta (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2
