-- Removes schedules. Param: numbers. Index: primary key.
DELETE FROM tidegate.schedules WHERE id = ANY($1::integer[])
