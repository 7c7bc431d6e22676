-- Removes leases. Params: leases. Index: primary key.
DELETE FROM tidegate.leases WHERE id = ANY($1)
