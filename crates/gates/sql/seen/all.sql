-- What processes have left, the newest first. $1: not longer ago than these microseconds; $2: how many. Rows: snapshot.
SELECT snapshot FROM tidegate.gate_seen
WHERE at >= (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - $1
ORDER BY at DESC
LIMIT $2
