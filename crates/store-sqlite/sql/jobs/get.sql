-- One job's unchanging part. Params: seq. Index: primary key.
SELECT id, kind, lane, tenant, created_at, run_at, timeout_ms, max_attempts, extra, payload FROM jobs WHERE seq = ?1
