-- They have been told. Params: seq. Index: primary key.
DELETE FROM untold WHERE seq = ?1
