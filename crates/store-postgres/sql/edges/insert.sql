-- Adds edges. Params: parents, children.
INSERT INTO tidegate.edges (parent, child) SELECT * FROM unnest($1::bigint[], $2::bigint[])
