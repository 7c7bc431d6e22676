-- When the next job is due. No params. Index: primary key.
SELECT run_at FROM tidegate.delayed ORDER BY run_at, seq LIMIT 1
