-- Writes one of the kinds. Params: number, name, settings (JSON). Index: primary key.
INSERT INTO tidegate.kinds (id, name, settings) VALUES ($1, $2, $3)
ON CONFLICT (id) DO UPDATE SET name = excluded.name, settings = excluded.settings
