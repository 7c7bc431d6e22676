-- Removes the mark, if there is one. Params: seq. Index: primary key.
DELETE FROM done WHERE seq = ?1
