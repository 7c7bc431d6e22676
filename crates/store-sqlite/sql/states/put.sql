-- Writes one job's changing part, all of it.
-- Params: seq, lane, settled, suspect, lone_stalls, run_at, body (JSON). Index: primary key.
INSERT INTO job_state (seq, lane, settled, suspect, lone_stalls, run_at, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (seq) DO UPDATE SET lane = ?2, settled = ?3, suspect = ?4, lone_stalls = ?5, run_at = ?6, body = ?7
