-- What others wrote after a version, oldest first, with the row of that version itself, without what it says, so that its
-- stamp can be compared. Params: version, most rows. Index: primary key.
SELECT version, stamp, next_seq, next_lease, now, CASE WHEN version > $1 THEN effects END
FROM tidegate.log WHERE version >= $1 ORDER BY version LIMIT $2
