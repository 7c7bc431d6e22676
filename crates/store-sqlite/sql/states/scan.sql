-- What a restart needs of every changing part, in order. No params. Index: primary key.
SELECT seq, lane, settled, suspect, lone_stalls, run_at FROM job_state ORDER BY seq
