-- Adds jobs. Fails if a number or an id exists. One row per statement here; the program repeats the row.
-- OR FAIL spares SQLite a copy of every page it touches: what fails here undoes the whole commit anyway.
-- Params: seq, id (16 bytes), kind, lane, tenant, created_at, run_at, timeout_ms, max_attempts, extra, payload.
-- Index: primary key (append), unique id.
INSERT OR FAIL INTO jobs (seq, id, kind, lane, tenant, created_at, run_at, timeout_ms, max_attempts, extra, payload)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
