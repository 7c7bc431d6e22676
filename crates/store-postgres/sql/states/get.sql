-- Changing parts of jobs. Params: numbers. Index: primary key.
SELECT seq, settled, run_at, lane, lone_stalls, suspect, body FROM tidegate.job_state WHERE seq = ANY($1)
