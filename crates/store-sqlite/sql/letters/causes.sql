-- Letters that wait for review by cause, those with most first. Filters that are NULL do not restrict.
-- Params: 1 queue, 2 kind, 3 tenant, 4 limit. Result: cause, letters, first and last time of death, highest number, queues; and
--   letters of all causes.
-- Index: done_cause; jobs by primary key only where kind or tenant is asked for.
SELECT cause, count(*) AS n, min(at), max(at), max(seq), count(DISTINCT queue), sum(count(*)) OVER ()
FROM done
WHERE state = 2 AND cause IS NOT NULL
  AND (?1 IS NULL OR queue = ?1)
  AND (?2 IS NULL OR (SELECT j.kind FROM jobs AS j WHERE j.seq = done.seq) = ?2)
  AND (?3 IS NULL OR (SELECT j.tenant FROM jobs AS j WHERE j.seq = done.seq) = ?3)
GROUP BY cause
ORDER BY n DESC, max(seq) DESC
LIMIT ?4
