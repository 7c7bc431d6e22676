-- Adds lists of jobs that were finished. Params: queues, times, states, how many jobs, where the runs of each begin and end in the
-- last param, runs.
INSERT INTO tidegate.finished (queue, at, state, jobs, runs)
SELECT l.queue, l.at, l.state, l.jobs, ($7::bigint[])[l.lo:l.hi]
FROM unnest($1::integer[], $2::bigint[], $3::smallint[], $4::integer[], $5::integer[], $6::integer[])
    AS l (queue, at, state, jobs, lo, hi)
