-- Removes a lease, if it exists. Params: id. Index: primary key.
DELETE FROM leases WHERE id = ?1
