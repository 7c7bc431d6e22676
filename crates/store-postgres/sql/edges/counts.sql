-- How many wait, or waited, for jobs. Params: first and last number of each run. Index: primary key, once for each job.
SELECT n, (SELECT count(*) FROM tidegate.edges AS e WHERE e.parent = n)
FROM unnest($1::bigint[], $2::bigint[]) AS run (first, last), generate_series(run.first, run.last) AS n
