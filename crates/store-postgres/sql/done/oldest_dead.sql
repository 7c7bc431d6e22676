-- The oldest dead jobs. Params: limit. Index: done_dead.
SELECT at, seq, queue FROM tidegate.done WHERE state = 2 ORDER BY at, seq LIMIT $1
