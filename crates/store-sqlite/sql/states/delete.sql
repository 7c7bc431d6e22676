-- Removes one job's changing part, if it has one. Params: seq. Index: primary key.
DELETE FROM job_state WHERE seq = ?1
