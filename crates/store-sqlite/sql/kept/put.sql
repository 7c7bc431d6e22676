-- Keeps what others need to know of a job. Params: seq, body (JSON). Index: primary key.
INSERT INTO kept (seq, body) VALUES (?1, ?2) ON CONFLICT (seq) DO UPDATE SET body = ?2
