-- The session that holds the lock while the server waits for rows of its client, which no timeout of the server ends; it is ended if
-- it has sent nothing since the last look. Params: that session and how much it had sent, or nulls at the first look. Result: the
-- session, how much it has sent, whether it was ended.
SELECT a.pid, p.bytes_processed,
    CASE WHEN a.pid = $1::int AND p.bytes_processed = $2::bigint THEN pg_terminate_backend(a.pid) ELSE false END
FROM tidegate.head AS h
JOIN pg_stat_activity AS a ON a.backend_xid = h.xmax
JOIN pg_stat_progress_copy AS p ON p.pid = a.pid
WHERE h.one AND a.state = 'active' AND a.wait_event = 'ClientRead'
