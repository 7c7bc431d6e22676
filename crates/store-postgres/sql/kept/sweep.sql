-- Forgets what was kept of jobs that nobody waits for any more. Params: numbers. Index: primary keys.
DELETE FROM tidegate.kept AS k
WHERE k.seq = ANY($1) AND NOT EXISTS (SELECT 1 FROM tidegate.edges AS e WHERE e.parent = k.seq)
