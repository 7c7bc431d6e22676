-- The oldest completed or cancelled jobs of a queue. Params: queue, limit. Index: done_by_queue.
SELECT at, seq, state FROM done WHERE queue = ?1 AND state <> 2 ORDER BY at, seq LIMIT ?2
