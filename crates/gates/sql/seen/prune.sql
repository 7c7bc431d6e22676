-- Forgets what was left longer ago than this, and the oldest where there are too many. $1: microseconds; $2: how many stay.
-- Rows that another process is just deleting or writing are left to it: two that delete the same rows must not wait for each other.
DELETE FROM tidegate.gate_seen
WHERE process IN (
    SELECT process
    FROM tidegate.gate_seen
    WHERE at < (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - $1
        OR process IN (SELECT process FROM tidegate.gate_seen ORDER BY at DESC, process OFFSET $2)
    FOR UPDATE SKIP LOCKED)
