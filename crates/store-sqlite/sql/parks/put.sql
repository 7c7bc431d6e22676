-- Writes a park; there is one per scope and owner. Params: scope (JSON), by, reason, until. Index: primary key.
INSERT INTO parks (scope, by_whom, reason, until) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (scope, by_whom) DO UPDATE SET reason = ?3, until = ?4
