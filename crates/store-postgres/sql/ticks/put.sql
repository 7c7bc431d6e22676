-- Writes lines of ledgers over those in their slots, each slot once. Params: one array per column. Index: primary key.
INSERT INTO tidegate.schedule_ticks (schedule, slot, no, body)
SELECT * FROM unnest($1::integer[], $2::integer[], $3::bigint[], $4::text[])
ON CONFLICT (schedule, slot) DO UPDATE SET no = excluded.no, body = excluded.body
