-- Takes one job off the schedule. Params: run_at, seq. Index: primary key.
DELETE FROM delayed WHERE run_at = ?1 AND seq = ?2
