-- Wakes those who wait in other processes, when the transaction is committed. $1: channel; $2: payloads.
SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload
