-- Moves the end of a lease. Params: id, until. Index: primary key.
UPDATE leases SET until = ?2 WHERE id = ?1
