-- What a job waits, or waited, for, in order. Params: child. Index: edges_by_child.
SELECT parent FROM edges WHERE child = ?1 ORDER BY parent
