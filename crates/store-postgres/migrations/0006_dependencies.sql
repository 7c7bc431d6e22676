-- Jobs that wait for other jobs. Breaking: a program that does not know `blocked` would run them at once.
--
-- An edge leads from a job to one that waits, or waited, for it, and is there for as long as the latter is stored. A blocked
-- job counts how many it still waits for. `kept` has what others need to know of a finished job that was pruned (JSON).
-- Rules for a dead dependency: 0 fail, 1 ignore, 2 wait.
CREATE TABLE tidegate.edges (
    parent bigint NOT NULL,
    child  bigint NOT NULL,
    PRIMARY KEY (parent, child)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);

CREATE INDEX edges_by_child ON tidegate.edges (child, parent);

CREATE TABLE tidegate.blocked (
    seq     bigint   PRIMARY KEY,
    run_at  bigint,
    open    integer  NOT NULL,
    on_dead smallint NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE TABLE tidegate.kept (
    seq  bigint PRIMARY KEY,
    body text   NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02);
