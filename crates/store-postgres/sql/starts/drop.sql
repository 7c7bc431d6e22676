-- Forgets starts at or before a time. Params: queue, time. Index: primary key.
DELETE FROM tidegate.starts WHERE queue = $1 AND at <= $2
