-- Who waits, or waited, for these jobs. Params: an array of parents. Index: primary key.
SELECT e.parent, e.child FROM rarray(?1) AS p CROSS JOIN edges AS e WHERE e.parent = p.value
