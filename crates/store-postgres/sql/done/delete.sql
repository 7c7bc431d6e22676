-- Removes marks. Params: numbers. Index: primary key.
DELETE FROM tidegate.done WHERE seq = ANY($1)
