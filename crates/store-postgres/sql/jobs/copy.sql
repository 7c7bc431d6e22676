-- Adds many jobs; an id or a number that exists ends the transaction. The rows follow in binary form.
COPY tidegate.jobs
    (seq, created_at, run_at, timeout_ms, id, kind, lane, tenant, max_attempts, extra, payload)
FROM STDIN (FORMAT binary)
