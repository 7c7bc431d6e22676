-- Adds starts to a limiter's window. Params: queue, time, count. Index: primary key.
INSERT INTO starts (queue, at, n) VALUES (?1, ?2, ?3) ON CONFLICT (queue, at) DO UPDATE SET n = n + ?3
