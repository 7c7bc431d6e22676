-- Who waits for a job that ended and has not been told yet: a flow is told in portions, one a commit. `ending`: 0 completed, 1 dead,
-- 2 cancelled, 3 not stored any more, 4 the same for a dead one. And whose the results are that are kept of pruned jobs. Breaking: an
-- older process would tell nobody, and leave them waiting.
CREATE TABLE tidegate.untold (
    seq    bigint   PRIMARY KEY,
    id     uuid     NOT NULL,
    ending smallint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

ALTER TABLE tidegate.kept ADD COLUMN tenant text;

CREATE INDEX kept_of_tenant ON tidegate.kept (tenant) WHERE tenant IS NOT NULL;
