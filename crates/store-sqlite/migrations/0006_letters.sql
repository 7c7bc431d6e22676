-- Dead letters that wait for review: found by time of death and by what they died of, and where their processor stands. Not
-- breaking for files: an older program does not open a newer file.
--
-- `cause` is made from the letter: its fingerprint while it waits for review ('' if an older version made it), else nothing.
ALTER TABLE done ADD COLUMN cause TEXT GENERATED ALWAYS AS (
    CASE WHEN instr(letter, '"review":"pending_review"') THEN coalesce(json_extract(letter, '$.cause'), '') END
) VIRTUAL;

CREATE INDEX done_pending ON done (at)               WHERE state = 2 AND cause IS NOT NULL;
CREATE INDEX done_cause   ON done (cause, at, queue) WHERE state = 2 AND cause IS NOT NULL;

CREATE TABLE rounds (
    name TEXT PRIMARY KEY,
    body TEXT NOT NULL
) WITHOUT ROWID;
