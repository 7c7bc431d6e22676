-- One number of the store itself. Params: name. Index: primary key.
SELECT value FROM meta WHERE name = ?1
