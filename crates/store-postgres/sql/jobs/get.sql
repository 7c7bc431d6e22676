-- Jobs by number. Params: first and last number of each run. Index: primary key, once for each run.
SELECT j.seq, j.created_at, j.run_at, j.timeout_ms, j.id, j.kind, j.lane, j.tenant, j.max_attempts, j.extra, j.payload
FROM unnest($1::bigint[], $2::bigint[]) AS run (first, last)
JOIN tidegate.jobs AS j ON j.seq >= run.first AND j.seq <= run.last
