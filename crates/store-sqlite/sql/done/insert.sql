-- Marks jobs as finished. Fails if one is. One row per statement here; the program repeats the row.
-- OR FAIL spares SQLite a copy of every page it touches: what fails here undoes the whole commit anyway.
-- Params: seq, queue, state, at, attempt, result, letter (JSON). Index: primary key, done_by_queue or done_dead, done_rare.
INSERT OR FAIL INTO done (seq, queue, state, at, attempt, result, letter)
VALUES (?, ?, ?, ?, ?, ?, ?)
