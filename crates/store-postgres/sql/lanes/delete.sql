-- Removes lanes. Params: numbers. Index: primary key.
DELETE FROM tidegate.lanes WHERE id = ANY($1)
