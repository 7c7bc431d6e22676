-- Letters that wait for review after a time and a number, oldest first. Params: time, number, limit. Index: done_pending.
SELECT at, seq FROM done
WHERE state = 2 AND cause IS NOT NULL AND at >= ?1 AND (at > ?1 OR seq > ?2)
ORDER BY at, seq LIMIT ?3
