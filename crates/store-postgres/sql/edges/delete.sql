-- Removes edges. Params: parents, children. Index: either.
DELETE FROM tidegate.edges AS e USING unnest($1::bigint[], $2::bigint[]) AS n (parent, child)
WHERE e.parent = n.parent AND e.child = n.child
