-- A blocked job. Params: seq. Index: primary key.
SELECT open, on_dead, run_at FROM blocked WHERE seq = ?1
