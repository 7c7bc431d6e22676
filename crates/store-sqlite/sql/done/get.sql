-- The mark of a finished job. Params: seq. Index: primary key.
SELECT queue, state, at, attempt, result, letter FROM done WHERE seq = ?1
