-- The server's clock in microseconds. One row.
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
