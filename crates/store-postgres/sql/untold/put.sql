-- Somebody has yet to be told of the end of jobs. Params: numbers, ids, endings. Index: primary key.
INSERT INTO tidegate.untold (seq, id, ending) SELECT * FROM unnest($1::bigint[], $2::uuid[], $3::smallint[])
ON CONFLICT (seq) DO UPDATE SET id = excluded.id, ending = excluded.ending
