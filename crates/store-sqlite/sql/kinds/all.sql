-- All kinds, in order of their numbers. No params. Index: primary key.
SELECT id, name, settings FROM kinds ORDER BY id
