-- Writes a lease, all of it. Params: id, worker, process, since, until, length_ms, lone, jobs. Index: primary key.
INSERT INTO leases (id, worker, process, since, until, length_ms, lone, jobs) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (id) DO UPDATE
SET worker = ?2, process = ?3, since = ?4, until = ?5, length_ms = ?6, lone = ?7, jobs = ?8
