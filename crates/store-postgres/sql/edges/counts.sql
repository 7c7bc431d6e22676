-- How many wait, or waited, for jobs. Params: first and last number of each run. Index: primary key, once for each run.
SELECT e.parent, count(*)
FROM unnest($1::bigint[], $2::bigint[]) AS run (first, last)
JOIN tidegate.edges AS e ON e.parent >= run.first AND e.parent <= run.last
GROUP BY e.parent
