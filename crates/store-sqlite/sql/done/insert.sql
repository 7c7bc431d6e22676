-- Marks jobs as finished. Fails if one is. One row per statement here; the program repeats the row.
-- Params: seq, queue, state, at, attempt, result, letter (JSON). Index: primary key, done_by_queue or done_dead, done_rare.
INSERT INTO done (seq, queue, state, at, attempt, result, letter)
VALUES (?, ?, ?, ?, ?, ?, ?)
