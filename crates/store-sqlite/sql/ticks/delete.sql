-- Removes a ledger. Param: schedule. Index: primary key.
DELETE FROM schedule_ticks WHERE schedule = ?1
