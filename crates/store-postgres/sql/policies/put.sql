-- Writes the registry's retry policies. Params: body (JSON). Index: primary key.
INSERT INTO tidegate.policies (id, body) VALUES (1, $1) ON CONFLICT (id) DO UPDATE SET body = excluded.body
