-- The jobs that are due, earliest first. Params: now, limit. Index: primary key.
SELECT run_at, seq FROM tidegate.delayed WHERE run_at <= $1 ORDER BY run_at, seq LIMIT $2
