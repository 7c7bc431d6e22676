-- Writes blocked jobs, each number once. Params: one array per column. Index: primary key.
INSERT INTO tidegate.blocked AS b (seq, run_at, open, on_dead)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::integer[], $4::smallint[])
ON CONFLICT (seq) DO UPDATE SET run_at = excluded.run_at, open = excluded.open, on_dead = excluded.on_dead
