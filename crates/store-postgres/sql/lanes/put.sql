-- Writes lanes. Params: one array per column. Index: primary key.
INSERT INTO tidegate.lanes (id, queue, priority, grp, connector, kind)
SELECT * FROM unnest($1::integer[], $2::integer[], $3::smallint[], $4::text[], $5::text[], $6::integer[])
