-- Whose turn it is, is told which versions of the program may take turns: one that is too old is refused there, however long
-- it has been running. Breaking: the renamed column stops the processes of versions 2 and 3, which do not ask, at their next
-- statement, before they can write; version 2 would take marks of others back.
ALTER TABLE tidegate.head ADD COLUMN readable_from integer NOT NULL DEFAULT 0;
ALTER TABLE tidegate.log RENAME COLUMN changes TO effects;
