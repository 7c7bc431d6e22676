-- Forgets what was kept of a job that nobody waits for any more. Params: seq. Index: primary keys.
DELETE FROM kept WHERE seq = ?1 AND NOT EXISTS (SELECT 1 FROM edges WHERE parent = ?1)
