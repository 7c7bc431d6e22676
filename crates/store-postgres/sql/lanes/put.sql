-- Writes lanes. Params: one array per column. Index: primary key.
INSERT INTO tidegate.lanes (id, queue, priority, grp, connector)
SELECT * FROM unnest($1::integer[], $2::integer[], $3::smallint[], $4::text[], $5::text[])
