-- The newest rows from a version on, newest first, for somebody who knows most of them. Params: version, most rows.
-- Index: primary key, backwards.
SELECT version, stamp, next_seq, next_lease, now, effects
FROM tidegate.log WHERE version >= $1 ORDER BY version DESC LIMIT $2
