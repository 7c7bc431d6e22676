-- All that is kept of these jobs, in the order of the array; of jobs that are not finished their numbers alone.
-- Params: an array of seqs. Index: primary keys.
SELECT j.id, j.kind, j.lane, j.tenant, j.created_at, j.run_at, j.timeout_ms, j.max_attempts, j.extra, j.payload,
       d.queue, d.state, d.at, d.attempt, d.result, d.letter,
       s.lane, s.settled, s.suspect, s.lone_stalls, s.run_at, s.body, j.seq
FROM rarray(?1) AS n CROSS JOIN jobs AS j LEFT JOIN done AS d ON d.seq = j.seq LEFT JOIN job_state AS s ON s.seq = d.seq
WHERE j.seq = n.value
