-- Schedules jobs. Params: times, numbers. Index: primary key.
INSERT INTO tidegate.delayed (run_at, seq) SELECT * FROM unnest($1::bigint[], $2::bigint[])
