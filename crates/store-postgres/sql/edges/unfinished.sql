-- Stored jobs that are not finished and have edges to others, with how many; read once at start. No params.
SELECT e.parent, count(*) FROM tidegate.edges AS e
WHERE NOT EXISTS (SELECT 1 FROM tidegate.done AS d WHERE d.seq = e.parent)
  AND EXISTS (SELECT 1 FROM tidegate.jobs AS j WHERE j.seq = e.parent)
GROUP BY e.parent
