-- What is on a shelf and has not expired, by key. Params: shelf, now. Index: primary key.
SELECT key, body, expires FROM tidegate.records
WHERE shelf = $1 AND (expires IS NULL OR expires > $2) ORDER BY key COLLATE "C"
