-- Writes a schedule. Fails if another has this name. Params: id, name, spec (JSON), state (JSON). Index: primary key.
INSERT INTO schedules (id, name, spec, state) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (id) DO UPDATE SET name = ?2, spec = ?3, state = ?4
