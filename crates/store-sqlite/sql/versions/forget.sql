-- Forgets all but the newest versions with this outcome. ?1 refused, ?2 how many stay. The table is small.
DELETE FROM versions WHERE refused = ?1
  AND number <= (SELECT number FROM versions WHERE refused = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2)
