-- All queues, in order of their numbers. No params. Index: primary key.
SELECT id, name, settings FROM queues ORDER BY id
