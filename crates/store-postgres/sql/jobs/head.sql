-- Lanes and tenants of jobs. Params: first and last number of each run. Index: primary key, once for each run.
SELECT j.seq, j.lane, j.tenant
FROM unnest($1::bigint[], $2::bigint[]) AS run (first, last)
JOIN tidegate.jobs AS j ON j.seq >= run.first AND j.seq <= run.last
