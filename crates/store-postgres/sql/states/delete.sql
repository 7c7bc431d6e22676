-- Removes changing parts. Params: numbers. Index: primary key.
DELETE FROM tidegate.job_state WHERE seq = ANY($1)
