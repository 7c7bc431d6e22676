-- Marks of finished jobs. Params: numbers. Index: primary key.
SELECT seq, at, queue, attempt, state, result, letter FROM tidegate.done WHERE seq = ANY($1)
