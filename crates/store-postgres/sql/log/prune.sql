-- Forgets a few old rows, but never the newest. Params: a version below which nothing is left, versions to keep, age in
-- seconds beyond which a row goes anyway, most rows, and bytes beyond which no further row is taken.
-- Index: primary key, from the first param on: entries that are dead but held by an old snapshot are not walked again.
DELETE FROM tidegate.log AS l
USING (
    SELECT version, at, newest,
           sum(octet_length(effects)) OVER (ORDER BY version) - octet_length(effects) AS bytes_before
    FROM (SELECT o.version, o.at, o.effects, n.version AS newest
          FROM (SELECT version FROM tidegate.log ORDER BY version DESC LIMIT 1) AS n, tidegate.log AS o
          WHERE o.version >= $1 AND o.version < n.version ORDER BY o.version LIMIT $4) AS few
) AS oldest
WHERE l.version = oldest.version AND oldest.bytes_before <= $5::bigint
  AND (oldest.version <= oldest.newest - $2::bigint
       OR oldest.at < clock_timestamp() - make_interval(secs => $3::double precision))
