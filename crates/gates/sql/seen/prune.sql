-- Forgets what was left longer ago than this, and the oldest where there are too many. $1: microseconds; $2: how many stay.
DELETE FROM tidegate.gate_seen
WHERE at < (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - $1
    OR process IN (SELECT process FROM tidegate.gate_seen ORDER BY at DESC, process OFFSET $2)
