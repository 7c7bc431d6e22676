-- When the next job is due. Params: a time before which there is none. Index: primary key, from that time on.
SELECT run_at FROM tidegate.delayed WHERE run_at >= $1 ORDER BY run_at, seq LIMIT 1
