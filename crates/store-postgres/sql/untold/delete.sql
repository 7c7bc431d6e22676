-- They have been told. Params: numbers. Index: primary key.
DELETE FROM tidegate.untold WHERE seq = ANY($1)
