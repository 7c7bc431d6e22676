-- The server's time in milliseconds since 1970, by which all processes go. No params.
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint
