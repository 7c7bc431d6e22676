-- What a letter that waits for review died of ('' if an older version made it), else nothing, as a column of its own. Not breaking for
-- files: an older program does not open a newer file.
--
-- Made from the letter, it was read out of its JSON several times whenever a letter was settled: half of the time of that.
DROP INDEX done_pending;
DROP INDEX done_cause;
ALTER TABLE done DROP COLUMN cause;
ALTER TABLE done ADD COLUMN cause TEXT;

UPDATE done SET cause = coalesce(json_extract(letter, '$.cause'), '')
WHERE state = 2 AND instr(letter, '"review":"pending_review"');

CREATE INDEX done_pending ON done (at)               WHERE state = 2 AND cause IS NOT NULL;
CREATE INDEX done_cause   ON done (cause, at, queue) WHERE state = 2 AND cause IS NOT NULL;
