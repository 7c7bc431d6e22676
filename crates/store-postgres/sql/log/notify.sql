-- Wakes the other processes when this transaction commits. Params: channel, text.
SELECT pg_notify($1, $2)
