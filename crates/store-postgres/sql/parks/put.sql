-- Writes a park. Params: scope, owner, the whole (JSON each). Index: primary key.
INSERT INTO tidegate.parks (scope, by_whom, body) VALUES ($1, $2, $3)
ON CONFLICT (scope, by_whom) DO UPDATE SET body = excluded.body
