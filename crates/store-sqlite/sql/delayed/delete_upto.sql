-- Takes off the schedule everything up to and with this entry: what `due` just returned, in the same transaction.
-- Params: run_at, seq of the last entry. Index: primary key.
DELETE FROM delayed WHERE (run_at, seq) <= (?1, ?2)
