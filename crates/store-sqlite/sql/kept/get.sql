-- What was kept of a job. Params: seq. Index: primary key.
SELECT body FROM kept WHERE seq = ?1
