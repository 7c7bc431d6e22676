-- Shortens lists. Params: queues, times, numbers, how many jobs are left, where the runs of each begin and end in the last param, runs.
-- Index: finished_pkey.
UPDATE tidegate.finished AS f SET jobs = l.jobs, runs = ($7::bigint[])[l.lo:l.hi]
FROM unnest($1::integer[], $2::bigint[], $3::bigint[], $4::integer[], $5::integer[], $6::integer[])
    AS l (queue, at, no, jobs, lo, hi)
WHERE f.queue = l.queue AND f.at = l.at AND f.no = l.no
