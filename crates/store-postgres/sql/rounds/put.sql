-- Writes where a duty that comes round stands. Params: name, body (JSON). Index: primary key.
INSERT INTO tidegate.rounds (name, body) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET body = $2
