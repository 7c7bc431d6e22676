-- Who waits, or waited, for a job, in order. Params: parent. Index: primary key.
SELECT child FROM edges WHERE parent = ?1 ORDER BY child
