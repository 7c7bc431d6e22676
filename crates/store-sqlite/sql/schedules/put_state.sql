-- Writes where a schedule stands. Params: id, state (JSON). Index: primary key.
UPDATE schedules SET state = ?2 WHERE id = ?1
