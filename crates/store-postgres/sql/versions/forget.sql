-- Forgets all but the newest versions with this outcome. Params: refused, how many stay. The table is small.
DELETE FROM tidegate.versions WHERE refused = $1
  AND number <= (SELECT number FROM tidegate.versions WHERE refused = $1 ORDER BY number DESC LIMIT 1 OFFSET $2)
