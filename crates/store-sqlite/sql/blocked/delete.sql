-- A job is not blocked any more. Params: seq. Index: primary key.
DELETE FROM blocked WHERE seq = ?1
