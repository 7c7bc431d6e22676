-- What jobs wait, or waited, for. Params: first and last number of each run. Index: edges_by_child, once for each run.
SELECT e.child, e.parent
FROM unnest($1::bigint[], $2::bigint[]) AS run (first, last)
JOIN tidegate.edges AS e ON e.child >= run.first AND e.child <= run.last
