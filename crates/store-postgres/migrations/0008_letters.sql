-- Dead letters that wait for review: found by time of death and by what they died of, and where their processor stands. Not
-- breaking: an older process leaves letters without a fingerprint behind, and the processor gives them one.
--
-- `cause` is made from the letter: its fingerprint while it waits for review ('' if an older version made it), else nothing. It is the
-- eighth column: a ninth would make the rows of all completed jobs eight bytes longer.
ALTER TABLE tidegate.done ADD COLUMN cause text GENERATED ALWAYS AS (
    CASE WHEN position('"review":"pending_review"' IN letter) > 0
         THEN coalesce(substring(letter FROM '"cause":"([0-9a-f]{16})"'), '') END
) STORED;

CREATE INDEX done_pending ON tidegate.done (at, seq)               WHERE cause IS NOT NULL;
CREATE INDEX done_cause   ON tidegate.done (cause, at, queue, seq) WHERE cause IS NOT NULL;

CREATE TABLE tidegate.rounds (
    name text PRIMARY KEY,
    body text NOT NULL
);
