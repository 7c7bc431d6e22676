-- Marks jobs as finished. Params: one array per column.
INSERT INTO tidegate.done (seq, at, queue, attempt, state, result, letter)
SELECT * FROM unnest(
    $1::bigint[], $2::bigint[], $3::integer[], $4::integer[], $5::smallint[], $6::text[], $7::text[])
