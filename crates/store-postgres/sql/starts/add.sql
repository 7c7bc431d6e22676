-- Adds starts to a limiter's window. Params: queue, time, count. Index: primary key.
INSERT INTO tidegate.starts AS s (queue, at, n) VALUES ($1, $2, $3)
ON CONFLICT (queue, at) DO UPDATE SET n = s.n + excluded.n
