-- Numbers of jobs that may fit a query, newest first, among the numbers from $1 up to but not with $2.
-- Never leaves out a job that fits; the caller looks at each one exactly. Filters that are NULL do not restrict.
-- Params: 1 from, 2 before, 3 kind, 4 tenant, 5 queue, 6 group, 7 created from, 8 created before, 9 text as it stands
--   in a payload, 10 the same as it stands inside a JSON string, 11 review status as it stands in a letter,
--   12 sum of the wanted states (2 completed, 4 dead, 8 cancelled, 16 scheduled, 32 ready or running, 64 blocked), 13 limit.
-- Index: primary key of jobs (range, descending); primary keys of the others, looked at only where a filter asks.
SELECT j.seq
FROM tidegate.jobs AS j
WHERE j.seq >= $1::bigint
  AND j.seq < $2::bigint
  AND ($3::text IS NULL OR j.kind = (SELECT id FROM tidegate.kinds WHERE name = $3))
  AND ($4::text IS NULL OR j.tenant = (SELECT id FROM tidegate.tenants WHERE name = $4))
  AND ($5::text IS NULL OR (SELECT l.queue FROM tidegate.lanes AS l WHERE l.id = j.lane)
        = (SELECT id FROM tidegate.queues WHERE name = $5))
  AND ($6::text IS NULL OR (SELECT l.grp FROM tidegate.lanes AS l WHERE l.id = j.lane) = $6)
  AND ($7::bigint IS NULL OR j.created_at >= $7)
  AND ($8::bigint IS NULL OR j.created_at < $8)
  AND ($12::integer IS NULL OR 0 <> ($12 & coalesce(
        (SELECT 1 << d.state FROM tidegate.done AS d WHERE d.seq = j.seq),
        (SELECT 64 FROM tidegate.blocked AS b WHERE b.seq = j.seq),
        (SELECT 16 FROM tidegate.delayed AS w
         WHERE w.run_at = coalesce((SELECT s.run_at FROM tidegate.job_state AS s WHERE s.seq = j.seq), j.run_at)
           AND w.seq = j.seq),
        32)))
  AND ($11::text IS NULL OR 0 < (SELECT position($11 IN d.letter) FROM tidegate.done AS d WHERE d.seq = j.seq))
  AND ($9::text IS NULL OR position($9 IN j.payload) > 0
        OR 0 < (SELECT position($10::text IN s.body) FROM tidegate.job_state AS s WHERE s.seq = j.seq))
ORDER BY j.seq DESC
LIMIT $13
