-- Writes a blocked job. Params: seq, open, on_dead, run_at. Index: primary key.
INSERT INTO blocked (seq, open, on_dead, run_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (seq) DO UPDATE SET open = ?2, on_dead = ?3, run_at = ?4
