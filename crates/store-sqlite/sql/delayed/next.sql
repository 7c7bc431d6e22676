-- When the next job is due. No params. Index: primary key, first entry.
SELECT run_at FROM delayed ORDER BY run_at LIMIT 1
