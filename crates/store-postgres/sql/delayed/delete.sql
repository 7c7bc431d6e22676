-- Takes jobs off the schedule. Params: times, numbers. Index: primary key.
DELETE FROM tidegate.delayed AS d USING unnest($1::bigint[], $2::bigint[]) AS n (run_at, seq)
WHERE d.run_at = n.run_at AND d.seq = n.seq
