-- Forgets what was left longer ago than this. $1: microseconds.
DELETE FROM tidegate.gate_seen
WHERE at < (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - $1
