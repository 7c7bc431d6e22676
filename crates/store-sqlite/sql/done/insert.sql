-- Marks jobs as finished. Fails if one is. One row per statement here; the program repeats the row.
-- OR FAIL spares SQLite a copy of every page it touches: what fails here undoes the whole commit anyway.
-- Params: seq, queue, state, at, attempt, result, letter (JSON), what it died of while it waits for review.
-- Index: primary key, done_by_queue or done_dead, done_rare; done_pending and done_cause of letters.
INSERT OR FAIL INTO done (seq, queue, state, at, attempt, result, letter, cause)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
