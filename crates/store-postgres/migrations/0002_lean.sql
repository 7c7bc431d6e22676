-- How rows are kept and cleaned up, as measured under load. Not breaking: version 1 reads and writes the same.
--
-- A lease's numbers do not compress to a purpose: trying took half a millisecond while everybody waited.
ALTER TABLE tidegate.leases ALTER COLUMN jobs SET STORAGE EXTERNAL;

-- The log's long rows are in its side table, which has settings of its own: without them it is cleaned up when a fifth of
-- it is dead, and grows meanwhile.
ALTER TABLE tidegate.log SET (
    autovacuum_vacuum_threshold = 2000,
    toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 20000,
    toast.autovacuum_vacuum_cost_delay = 0
);
