-- Reads every table and index into the server's cache, the largest first.
SELECT sum(pg_prewarm(relation))
FROM (
  SELECT oid AS relation FROM pg_class
  WHERE relnamespace = 'tidegate'::regnamespace AND relkind IN ('r', 'i')
  ORDER BY pg_relation_size(oid) DESC
) AS largest_first;
