-- Forgets old rows, but not the newest: looks at a few of the oldest, because this is done between commits that others wait
-- for. Params: a version below which nothing is left, versions to keep, age in seconds beyond which a row goes anyway, the
-- newest version, rows to look at. Index: primary key, from the first param on: entries that are dead but held by an old
-- snapshot are not walked again.
DELETE FROM tidegate.log AS l
USING (SELECT version, at FROM tidegate.log WHERE version >= $1 AND version < $4 ORDER BY version LIMIT $5) AS oldest
WHERE l.version = oldest.version
  AND (oldest.version <= $4 - $2::bigint
       OR oldest.at < clock_timestamp() - make_interval(secs => $3::double precision))
