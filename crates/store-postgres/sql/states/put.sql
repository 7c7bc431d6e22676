-- Writes changing parts, each number once. Params: one array per column. Index: primary key.
INSERT INTO tidegate.job_state AS s (seq, settled, run_at, lane, lone_stalls, suspect, body)
SELECT * FROM unnest(
    $1::bigint[], $2::bigint[], $3::bigint[], $4::integer[], $5::integer[], $6::boolean[], $7::text[])
ON CONFLICT (seq) DO UPDATE SET settled = excluded.settled, run_at = excluded.run_at, lane = excluded.lane,
    lone_stalls = excluded.lone_stalls, suspect = excluded.suspect, body = excluded.body
