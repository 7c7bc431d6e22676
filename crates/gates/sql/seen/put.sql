-- Leaves what a process has seen, in place of what it left before, by the server's clock. $1: process; $2: snapshot.
INSERT INTO tidegate.gate_seen (process, at, snapshot)
VALUES ($1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, $2)
ON CONFLICT (process) DO UPDATE SET at = excluded.at, snapshot = excluded.snapshot
