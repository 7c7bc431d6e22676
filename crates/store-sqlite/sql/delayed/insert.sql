-- Schedules a job; scheduling it twice for the same time is the same as once. Params: run_at, seq. Index: primary key.
INSERT INTO delayed (run_at, seq) VALUES (?1, ?2) ON CONFLICT DO NOTHING
