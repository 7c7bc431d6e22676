-- All starts, oldest first for each queue. No params. Index: primary key.
SELECT queue, at, n FROM tidegate.starts ORDER BY queue, at
