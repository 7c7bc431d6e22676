-- The earliest due jobs, earliest first. Params: now, limit. Index: primary key.
SELECT run_at, seq FROM delayed WHERE run_at <= ?1 ORDER BY run_at, seq LIMIT ?2
