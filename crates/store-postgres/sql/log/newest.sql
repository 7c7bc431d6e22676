-- The newest rows from a version on, newest first, for somebody who knows most of them: the last of them, and the row of that
-- version, without what they say. Params: version, most rows. Index: primary key, backwards.
SELECT version, stamp, next_seq, next_lease, now,
       CASE WHEN version > $1 AND row_number() OVER (ORDER BY version DESC) < $2 THEN effects END
FROM tidegate.log WHERE version >= $1 ORDER BY version DESC LIMIT $2
