-- Letters that wait for review after a time and a number, oldest first. Params: time, number, limit. Index: done_pending.
SELECT at, seq FROM tidegate.done
WHERE cause IS NOT NULL AND (at, seq) > ($1, $2)
ORDER BY at, seq LIMIT $3
