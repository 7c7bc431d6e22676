-- Removes lists. Params: queues, times, numbers. Index: finished_pkey.
DELETE FROM tidegate.finished AS f USING unnest($1::integer[], $2::bigint[], $3::bigint[]) AS l (queue, at, no)
WHERE f.queue = l.queue AND f.at = l.at AND f.no = l.no
