-- Removes marks. Params: first and last number of each run. Index: done_by_seq, once for each run.
DELETE FROM tidegate.done AS t USING unnest($1::bigint[], $2::bigint[]) AS run (first, last)
WHERE t.seq >= run.first AND t.seq <= run.last
