-- The jobs of every lease, some of which may be settled. No params. Index: primary key.
SELECT jobs FROM leases
