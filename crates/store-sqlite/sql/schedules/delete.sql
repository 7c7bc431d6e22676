-- Removes a schedule. Param: id. Index: primary key.
DELETE FROM schedules WHERE id = ?1
