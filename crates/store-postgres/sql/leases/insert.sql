-- Writes a lease. Params: one per column.
INSERT INTO tidegate.leases (id, process, since, until, length_ms, lone, worker, jobs)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
