-- Removes a park, if it exists. Params: scope (JSON), by. Index: primary key.
DELETE FROM parks WHERE scope = ?1 AND by_whom = ?2
