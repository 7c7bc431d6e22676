-- Lists of finished jobs that some job may be on. Params: queues, times, lowest and highest number of the jobs of each. Index: finished_pkey.
SELECT f.at, f.no, f.state, f.runs, f.queue
FROM unnest($1::integer[], $2::bigint[], $3::bigint[], $4::bigint[]) AS of (queue, at, low, high)
JOIN tidegate.finished AS f ON f.queue = of.queue AND f.at = of.at
WHERE f.runs[1] <= of.high AND f.runs[cardinality(f.runs)] >= of.low
