-- Jobs that wait for other jobs. Breaking: a program that does not know `blocked` would run them at once.
--
-- An edge leads from a job to one that waits, or waited, for it, and is there for as long as the latter is stored. A blocked
-- job counts how many it still waits for. `kept` has what others need to know of a finished job that was pruned (JSON).
-- Rules for a dead dependency: 0 fail, 1 ignore, 2 wait.
CREATE TABLE edges (
    parent INTEGER NOT NULL,
    child  INTEGER NOT NULL,
    PRIMARY KEY (parent, child)
) WITHOUT ROWID;

CREATE INDEX edges_by_child ON edges (child, parent);

CREATE TABLE blocked (
    seq     INTEGER PRIMARY KEY,
    open    INTEGER NOT NULL,
    on_dead INTEGER NOT NULL,
    run_at  INTEGER
);

CREATE TABLE kept (
    seq  INTEGER PRIMARY KEY,
    body TEXT NOT NULL
);
