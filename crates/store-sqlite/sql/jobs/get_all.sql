-- The unchanging parts of these jobs, in the order of the array. Params: an array of seqs. Index: primary key.
SELECT j.id, j.kind, j.lane, j.tenant, j.created_at, j.run_at, j.timeout_ms, j.max_attempts, j.extra, j.payload, j.seq
FROM rarray(?1) AS s CROSS JOIN jobs AS j WHERE j.seq = s.value
