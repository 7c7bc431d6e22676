-- What was kept of a job. Params: number. Index: primary key.
SELECT body FROM tidegate.kept WHERE seq = $1
