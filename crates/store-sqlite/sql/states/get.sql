-- One job's changing part. Params: seq. Index: primary key.
SELECT lane, settled, suspect, lone_stalls, run_at, body FROM job_state WHERE seq = ?1
