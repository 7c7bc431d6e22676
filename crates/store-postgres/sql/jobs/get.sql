-- Jobs by number. Params: numbers. Index: primary key.
SELECT seq, created_at, run_at, timeout_ms, id, kind, lane, tenant, max_attempts, extra, payload
FROM tidegate.jobs WHERE seq = ANY($1)
