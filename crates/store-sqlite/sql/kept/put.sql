-- Keeps what others need to know of a job. Params: seq, body (JSON), tenant. Index: primary key.
INSERT INTO kept (seq, body, tenant) VALUES (?1, ?2, ?3) ON CONFLICT (seq) DO UPDATE SET body = ?2, tenant = ?3
