-- Moves the ends of leases. Params: leases, ends. Index: primary key.
UPDATE tidegate.leases AS l SET until = n.until FROM unnest($1::bigint[], $2::bigint[]) AS n (id, until)
WHERE l.id = n.id
