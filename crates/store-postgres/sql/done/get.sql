-- Marks of finished jobs. Params: first and last number of each run. Index: done_by_seq, once for each run.
SELECT d.seq, d.at, d.queue, d.attempt, d.state, d.result, d.letter
FROM unnest($1::bigint[], $2::bigint[]) AS run (first, last)
JOIN tidegate.done AS d ON d.seq >= run.first AND d.seq <= run.last
