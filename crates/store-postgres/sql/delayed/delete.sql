-- Takes jobs off the schedule. All of them must be there: otherwise rows and memory say different things, and it fails with a
-- division by zero. Params: times, numbers. Index: primary key.
WITH gone AS (
    DELETE FROM tidegate.delayed AS d USING unnest($1::bigint[], $2::bigint[]) AS n (run_at, seq)
    WHERE d.run_at = n.run_at AND d.seq = n.seq
    RETURNING 1
)
SELECT 1 / (count(*) = cardinality($1::bigint[]))::integer FROM gone
