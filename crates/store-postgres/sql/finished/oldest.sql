-- The oldest lists of finished jobs of a queue after one of them: as many as have so many jobs, with all of the last one's time. Params: queue, time and
-- number of that list, most lists, jobs. Index: finished_pkey, from there on: dead entries before it are not walked again.
SELECT at, no, state, runs
FROM (
    SELECT at, no, state, runs,
        sum(jobs) OVER (ORDER BY at RANGE BETWEEN UNBOUNDED PRECEDING AND 1::bigint PRECEDING) AS earlier
    FROM (
        SELECT at, no, jobs, state, runs FROM tidegate.finished
        WHERE queue = $1 AND (at, no) > ($2, $3) ORDER BY at, no LIMIT $4
    ) AS page
) AS lists
WHERE coalesce(earlier, 0) < $5::bigint
