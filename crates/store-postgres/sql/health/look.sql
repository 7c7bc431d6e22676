-- How the server is. No params. Result: its version, its time in milliseconds, seconds since the oldest snapshot that
-- holds back cleaning was taken (0 if there is none that this role may see), what holds it, rows in the log, rows in
-- the inbox (up to 10,001).
SELECT current_setting('server_version'),
       (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
       coalesce((SELECT max(extract(epoch FROM clock_timestamp() - xact_start))::bigint FROM pg_stat_activity
                 -- One that has written and now does nothing has no snapshot, and holds it back by its number.
                 WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND xact_start IS NOT NULL AND pid <> pg_backend_pid()
                   AND datname = current_database()), 0),
       coalesce((SELECT max(extract(epoch FROM clock_timestamp() - prepared))::bigint FROM pg_prepared_xacts
                 WHERE database = current_database()), 0),
       (SELECT version FROM tidegate.log ORDER BY version DESC LIMIT 1)
         - (SELECT version FROM tidegate.log ORDER BY version LIMIT 1) + 1,
       (SELECT count(*) FROM (SELECT FROM tidegate.inbox LIMIT 10001) AS i)
