-- Waits until everything that was committed before is on the server's disk, and wherever else it has to be: a transaction
-- with nothing in it but a note in the server's log, which is written in order. Params: version and stamp of a row of the
-- log. Result: whether the server still has that row; if not, it has forgotten commits. Index: primary key.
SELECT EXISTS (SELECT FROM tidegate.log WHERE version = $1 AND stamp = $2),
       set_config('synchronous_commit', 'on', true),
       pg_logical_emit_message(true, 'tidegate', '')::text
