-- Removes ledgers. Param: numbers of their schedules. Index: primary key.
DELETE FROM tidegate.schedule_ticks WHERE schedule = ANY($1::integer[])
