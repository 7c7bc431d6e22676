-- What a restart needs of every job, in order; never follows overflow pages. No params. Index: primary key.
SELECT seq, lane, tenant, run_at FROM jobs ORDER BY seq
