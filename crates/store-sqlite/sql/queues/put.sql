-- Writes one of the queues. Fails if another has this name. Params: id, name, settings (JSON). Index: primary key.
INSERT INTO queues (id, name, settings) VALUES (?1, ?2, ?3) ON CONFLICT (id) DO UPDATE SET name = ?2, settings = ?3
