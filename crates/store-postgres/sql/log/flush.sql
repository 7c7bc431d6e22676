-- Waits until everything that was committed before is on the server's disk, and wherever else it has to be: a transaction
-- with nothing in it but a note in the server's log, which is written in order. No params, no tables.
SELECT pg_logical_emit_message(true, 'tidegate', '')::text
