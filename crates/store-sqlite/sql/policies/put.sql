-- Writes the registry's retry policies. ?1 body (JSON). Index: primary key.
INSERT INTO policies (id, body) VALUES (1, ?1) ON CONFLICT (id) DO UPDATE SET body = excluded.body
