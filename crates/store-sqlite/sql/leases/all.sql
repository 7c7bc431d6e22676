-- Every lease, in order. No params. Index: primary key.
SELECT id, worker, process, since, until, length_ms, lone, jobs FROM leases ORDER BY id
