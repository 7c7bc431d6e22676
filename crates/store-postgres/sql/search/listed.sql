-- Those of the listed jobs that may fit a query, newest first. Otherwise as `search/window`, with the same conditions.
-- Params: 1 numbers, 2 before; 3 to 13 as in `search/window`. Index: primary key of jobs.
SELECT j.seq
FROM unnest($1::bigint[]) AS n (seq)
JOIN tidegate.jobs AS j ON j.seq = n.seq
WHERE j.seq < $2::bigint
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
