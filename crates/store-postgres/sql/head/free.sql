-- Ends the session that holds the lock if it has waited for its client in the middle of a statement for too long: the server's own
-- limits do not see that. Params: milliseconds. Result: whether there was one.
SELECT coalesce(bool_or(pg_terminate_backend(a.pid)), false)
FROM tidegate.head AS h JOIN pg_stat_activity AS a ON a.backend_xid = h.xmax
WHERE h.one AND a.state = 'active' AND a.wait_event = 'ClientRead'
    AND a.query_start < clock_timestamp() - $1::bigint * interval '1 millisecond'
