-- Forgets old rows, but not the newest. Params: a version below which nothing is left, versions to keep, age in
-- seconds beyond which a row goes anyway, the newest version. Index: primary key, from the first param on: entries that
-- are dead but held by an old snapshot are not walked again.
DELETE FROM tidegate.log
WHERE version >= $1 AND version < $4
  AND (version <= $4 - $2::bigint OR at < clock_timestamp() - make_interval(secs => $3::double precision))
