-- How many wait, or waited, for a job, up to a number. Params: parent, most. Index: primary key.
SELECT count(*) FROM (SELECT 1 FROM edges WHERE parent = ?1 LIMIT ?2)
