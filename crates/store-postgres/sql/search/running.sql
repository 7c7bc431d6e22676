-- Jobs under a lease; those settled since are among them. Params: before.
SELECT DISTINCT j.seq FROM tidegate.leases, unnest(jobs) AS j (seq) WHERE j.seq < $1
