-- Those of the listed jobs that may fit a query, in the order of the list. Otherwise as `search/window`, with the same conditions.
-- Params: 1 an array of numbers, 2 before; 3 to 13 as in `search/window`. Index: primary key of jobs.
SELECT j.seq
FROM rarray(?1) AS n CROSS JOIN jobs AS j
WHERE j.seq = n.value
  AND j.seq < ?2
  AND (?3 IS NULL OR j.kind = (SELECT id FROM kinds WHERE name = ?3))
  AND (?4 IS NULL OR j.tenant = (SELECT id FROM tenants WHERE name = ?4))
  AND (?5 IS NULL OR (SELECT l.queue FROM lanes AS l WHERE l.id = j.lane) = (SELECT id FROM queues WHERE name = ?5))
  AND (?6 IS NULL OR (SELECT l.grp FROM lanes AS l WHERE l.id = j.lane) = ?6)
  AND (?7 IS NULL OR j.created_at >= ?7)
  AND (?8 IS NULL OR j.created_at < ?8)
  AND (?12 IS NULL OR ?12 & coalesce(
        (SELECT 1 << d.state FROM done AS d WHERE d.seq = j.seq),
        (SELECT 64 FROM blocked AS b WHERE b.seq = j.seq),
        (SELECT 16 FROM delayed AS w
         WHERE w.run_at = coalesce((SELECT s.run_at FROM job_state AS s WHERE s.seq = j.seq), j.run_at)
           AND w.seq = j.seq),
        32))
  AND (?11 IS NULL OR instr((SELECT d.letter FROM done AS d WHERE d.seq = j.seq), ?11))
  AND (?9 IS NULL OR instr(j.payload, ?9) OR instr((SELECT s.body FROM job_state AS s WHERE s.seq = j.seq), ?10))
LIMIT ?13
