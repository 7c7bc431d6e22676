-- Jobs that wait, or waited, for others, in order; read once at start. No params. Index: edges_by_child.
SELECT DISTINCT child FROM edges ORDER BY child
