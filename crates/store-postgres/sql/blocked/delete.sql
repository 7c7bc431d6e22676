-- Jobs are not blocked any more. Params: first and last number of each run. Index: primary key, once for each run.
DELETE FROM tidegate.blocked AS t USING unnest($1::bigint[], $2::bigint[]) AS run (first, last)
WHERE t.seq >= run.first AND t.seq <= run.last
