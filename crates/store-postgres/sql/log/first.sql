-- The oldest row from a version on. Params: version. Index: primary key.
SELECT version FROM tidegate.log WHERE version >= $1 ORDER BY version LIMIT 1
