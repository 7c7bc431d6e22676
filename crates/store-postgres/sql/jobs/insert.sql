-- Adds jobs; an id or a number that exists ends the transaction. Params: one array per column.
INSERT INTO tidegate.jobs
    (seq, created_at, run_at, timeout_ms, id, kind, lane, tenant, max_attempts, extra, payload)
SELECT * FROM unnest(
    $1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::uuid[], $6::integer[], $7::integer[], $8::integer[],
    $9::integer[], $10::text[], $11::text[])
