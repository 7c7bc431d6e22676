-- Those of these jobs that are blocked, with lane and tenant. Params: an array of seqs. Index: primary keys.
SELECT b.open, b.on_dead, b.run_at, b.seq, j.lane, j.tenant
FROM rarray(?1) AS s CROSS JOIN blocked AS b CROSS JOIN jobs AS j
WHERE b.seq = s.value AND j.seq = b.seq
