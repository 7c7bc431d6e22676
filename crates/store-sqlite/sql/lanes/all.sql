-- All lanes, in order of their numbers. No params. Index: primary key.
SELECT id, queue, grp, connector, priority, kind FROM lanes ORDER BY id
