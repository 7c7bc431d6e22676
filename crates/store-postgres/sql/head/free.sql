-- Ends the session that holds the lock if a statement of its has waited for its client for longer than any statement may take: the
-- server does not end that by itself. Params: milliseconds. Result: whether there was one.
SELECT coalesce(bool_or(pg_terminate_backend(a.pid)), false)
FROM tidegate.head AS h JOIN pg_stat_activity AS a ON a.backend_xid = h.xmax
WHERE h.one AND a.state = 'active' AND a.wait_event = 'ClientRead'
    AND a.query_start < clock_timestamp() - $1::bigint * interval '1 millisecond'
