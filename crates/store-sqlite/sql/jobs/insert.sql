-- Adds jobs. Fails if a number or an id exists. One row per statement here; the program repeats the row.
-- Params: seq, id (16 bytes), kind, lane, tenant, created_at, run_at, timeout_ms, max_attempts, extra, payload.
-- Index: primary key (append), unique id.
INSERT INTO jobs (seq, id, kind, lane, tenant, created_at, run_at, timeout_ms, max_attempts, extra, payload)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
