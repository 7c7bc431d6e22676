-- Finished jobs are found for deleting by lists, one for each commit, queue, time and state, instead of an index entry for each job.
-- Breaking: an older process would finish jobs that are on no list, and they would be kept for ever.
--
-- Every completed or cancelled job is on one list until it is deleted. `runs` has the first and the last number of each run of consecutive
-- numbers, one after the other, not compressed for the same reason as those of a lease; `jobs` says how many they are.
CREATE TABLE tidegate.finished (
    queue integer  NOT NULL,
    at    bigint   NOT NULL,
    no    bigint   GENERATED ALWAYS AS IDENTITY,
    jobs  integer  NOT NULL,
    state smallint NOT NULL,
    runs  bigint[] NOT NULL,
    PRIMARY KEY (queue, at, no)
) WITH (
    toast_tuple_target = 8160,
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0.02, toast.autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE tidegate.finished ALTER COLUMN runs SET STORAGE EXTERNAL;

-- Nobody finishes a job from here on, not even one who writes its mark before its turn; to read is no obstacle, nor is it hindered. Whose turn
-- it is comes first: who has it needs nothing else that is taken here. Those who wait for it with their marks are in the way of the second; the
-- server undoes one side's transaction after a second, and both try again.
SELECT FROM tidegate.head WHERE one FOR UPDATE;
LOCK TABLE tidegate.done IN SHARE ROW EXCLUSIVE MODE;

-- The index that this replaces is dropped afterwards, where nobody is in the way: schema.rs, LEFTOVERS.
INSERT INTO tidegate.finished (queue, at, jobs, state, runs)
SELECT queue, at, (sum(jobs) / 2)::integer, state, array_agg(number ORDER BY number)
FROM (
    -- No list has more runs than a program writes into one: rows/finished.rs, MOST_RUNS.
    SELECT *, (row_number() OVER (PARTITION BY queue, at, state ORDER BY first) - 1) / 120 AS part
    FROM (
        SELECT queue, at, state, count(*) AS jobs, min(seq) AS first, max(seq) AS last
        FROM (
            SELECT queue, at, state, seq, seq - row_number() OVER (PARTITION BY queue, at, state ORDER BY seq) AS run
            FROM tidegate.done WHERE state <> 2
        ) AS numbered
        GROUP BY queue, at, state, run
    ) AS runs
) AS parts
CROSS JOIN LATERAL unnest(ARRAY[first, last]) AS ends (number)
GROUP BY queue, at, state, part;
