-- Changes the dead-letter side of a finished job. Params: seq, letter (JSON), what it died of while it waits for review.
-- Index: primary key; done_pending and done_cause.
UPDATE done SET letter = ?2, cause = ?3 WHERE seq = ?1
