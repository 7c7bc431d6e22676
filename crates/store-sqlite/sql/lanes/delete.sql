-- Removes a lane, if it exists. Params: id. Index: primary key.
DELETE FROM lanes WHERE id = ?1
