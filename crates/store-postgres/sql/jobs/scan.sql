-- Every job with where it stands, in order of its number; read once at start. No params.
-- Plan: merge of the six tables in order of their numbers, `delayed` sorted.
COPY (
    SELECT j.seq, j.run_at, j.lane, j.tenant, d.state, d.at, w.seq IS NOT NULL, b.seq IS NOT NULL,
           e.child IS NOT NULL, s.seq IS NOT NULL, s.lane, s.settled, s.suspect, s.lone_stalls, s.run_at
    FROM tidegate.jobs AS j
    LEFT JOIN tidegate.done AS d ON d.seq = j.seq
    LEFT JOIN tidegate.delayed AS w ON w.seq = j.seq
    LEFT JOIN tidegate.blocked AS b ON b.seq = j.seq
    LEFT JOIN (SELECT DISTINCT child FROM tidegate.edges) AS e ON e.child = j.seq
    LEFT JOIN tidegate.job_state AS s ON s.seq = j.seq
    ORDER BY j.seq
) TO STDOUT (FORMAT binary)
