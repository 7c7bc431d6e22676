-- Blocked jobs. Params: first and last number of each run. Index: primary key, once for each run.
SELECT b.seq, b.run_at, b.open, b.on_dead
FROM unnest($1::bigint[], $2::bigint[]) AS run (first, last)
JOIN tidegate.blocked AS b ON b.seq >= run.first AND b.seq <= run.last
