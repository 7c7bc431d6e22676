-- All leases. No params.
SELECT id, process, since, until, length_ms, lone, worker, jobs FROM tidegate.leases ORDER BY id
