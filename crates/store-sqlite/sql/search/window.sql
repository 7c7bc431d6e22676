-- Numbers of jobs that may fit a query, newest first, among the numbers from ?1 up to but not with ?2.
-- Never leaves out a job that fits; the caller looks at each one exactly. Filters that are NULL do not restrict.
-- Params: 1 from, 2 before, 3 kind, 4 tenant, 5 queue, 6 group, 7 created from, 8 created before, 9 text as it stands
--   in a payload, 10 the same as it stands inside a JSON string, 11 review status as it stands in a letter,
--   12 sum of the wanted states (2 completed, 4 dead, 8 cancelled, 16 scheduled, 32 ready or running, 64 blocked), 13 limit.
-- Index: primary key of jobs (range, descending); primary keys of the others, looked at only where a filter asks.
SELECT j.seq
FROM jobs AS j
WHERE j.seq >= ?1
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
ORDER BY j.seq DESC
LIMIT ?13
