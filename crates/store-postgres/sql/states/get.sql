-- Changing parts of jobs. Params: first and last number of each run. Index: primary key, once for each run.
SELECT s.seq, s.settled, s.run_at, s.lane, s.lone_stalls, s.suspect, s.body
FROM unnest($1::bigint[], $2::bigint[]) AS run (first, last)
JOIN tidegate.job_state AS s ON s.seq >= run.first AND s.seq <= run.last
