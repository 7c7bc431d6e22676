-- The oldest completed or cancelled jobs of a queue. Params: queue, a time before which there is none, limit.
-- Index: done_by_queue, from that time on: dead entries before it are not walked again.
SELECT at, seq, state FROM tidegate.done
WHERE queue = $1 AND state <> 2 AND at >= $2 ORDER BY at, seq LIMIT $3
