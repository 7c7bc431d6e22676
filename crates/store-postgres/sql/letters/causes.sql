-- Letters that wait for review by cause, those with most first. Filters that are NULL do not restrict.
-- Params: 1 queue, 2 kind, 3 tenant, 4 limit. Result: cause, letters, first and last time of death, highest number, queues; and
--   letters of all causes.
-- Index: done_cause alone; jobs by primary key only where kind or tenant is asked for.
SELECT cause, count(*), min(at), max(at), max(seq), count(DISTINCT queue), (sum(count(*)) OVER ())::bigint
FROM tidegate.done
WHERE cause IS NOT NULL
  AND ($1::integer IS NULL OR queue = $1)
  AND ($2::integer IS NULL OR (SELECT j.kind FROM tidegate.jobs AS j WHERE j.seq = done.seq) = $2)
  AND ($3::integer IS NULL OR (SELECT j.tenant FROM tidegate.jobs AS j WHERE j.seq = done.seq) = $3)
GROUP BY cause
ORDER BY count(*) DESC, max(seq) DESC
LIMIT $4
