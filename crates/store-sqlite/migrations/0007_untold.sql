-- Who waits for a job that ended and has not been told yet: a flow is told in portions, one a commit. `ending`: 0 completed, 1 dead,
-- 2 cancelled, 3 not stored any more, 4 the same for a dead one. And whose the results are that are kept of pruned jobs.
CREATE TABLE untold (
    seq    INTEGER PRIMARY KEY,
    id     BLOB    NOT NULL,
    ending INTEGER NOT NULL
);

ALTER TABLE kept ADD COLUMN tenant TEXT;

CREATE INDEX kept_of_tenant ON kept (tenant) WHERE tenant IS NOT NULL;
