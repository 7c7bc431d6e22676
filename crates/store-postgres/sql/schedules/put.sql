-- Writes a schedule. Params: number, name, spec (JSON), state (JSON). Index: primary key.
INSERT INTO tidegate.schedules (id, name, spec, state) VALUES ($1, $2, $3, $4)
ON CONFLICT (id) DO UPDATE SET name = excluded.name, spec = excluded.spec, state = excluded.state
