-- Adds to one number of the store itself and returns it. Params: name, how much. Index: primary key.
UPDATE meta SET value = value + ?2 WHERE name = ?1 RETURNING value
