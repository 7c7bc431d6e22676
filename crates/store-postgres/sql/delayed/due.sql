-- The jobs that are due, earliest first. Params: a time before which there is none, now, limit. Index: primary key, from
-- that time on: dead entries before it are not walked.
SELECT run_at, seq FROM tidegate.delayed WHERE run_at >= $1 AND run_at <= $2 ORDER BY run_at, seq LIMIT $3
