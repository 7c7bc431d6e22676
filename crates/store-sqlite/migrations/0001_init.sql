-- The first schema. Not breaking: there was none before.
--
-- A job's row never changes while it lives; what changes is kept beside it, and only for the few jobs that need it:
-- `job_state` (retries, marks, progress), `delayed` (scheduled), `done` (finished), `leases` (running). A job in none
-- of `delayed`, `done` and `leases` is ready; the list of ready jobs is in the owner's memory and rebuilt at start.
--
-- Times are milliseconds since 1970. States of finished jobs: 1 completed, 2 dead, 3 cancelled.

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;

INSERT INTO meta (name, value) VALUES ('epoch', 0), ('reserved_seq', 1);

-- `payload` comes last, so that a scan of the other columns never follows a payload that overflows its page.
CREATE TABLE jobs (
    seq          INTEGER PRIMARY KEY,
    id           BLOB    NOT NULL UNIQUE,
    kind         INTEGER NOT NULL,
    lane         INTEGER NOT NULL,
    tenant       INTEGER,
    created_at   INTEGER NOT NULL,
    run_at       INTEGER NOT NULL,
    timeout_ms   INTEGER NOT NULL,
    max_attempts INTEGER,
    extra        TEXT,
    payload      TEXT    NOT NULL
);

CREATE TABLE job_state (
    seq         INTEGER PRIMARY KEY,
    lane        INTEGER,
    settled     INTEGER,
    suspect     INTEGER NOT NULL,
    lone_stalls INTEGER NOT NULL,
    run_at      INTEGER,
    body        TEXT    NOT NULL
);

CREATE TABLE delayed (
    run_at INTEGER NOT NULL,
    seq    INTEGER NOT NULL,
    PRIMARY KEY (run_at, seq)
) WITHOUT ROWID;

CREATE TABLE done (
    seq     INTEGER PRIMARY KEY,
    queue   INTEGER NOT NULL,
    state   INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    result  TEXT,
    letter  TEXT
);

-- Retention by queue; retention of dead letters; search for the few dead and cancelled among many completed.
CREATE INDEX done_by_queue ON done (queue, at) WHERE state <> 2;
CREATE INDEX done_dead     ON done (at)        WHERE state = 2;
CREATE INDEX done_rare     ON done (state)     WHERE state <> 1;

-- `jobs` holds the numbers of the granted jobs, eight bytes each, least significant byte first.
CREATE TABLE leases (
    id        INTEGER PRIMARY KEY,
    worker    TEXT    NOT NULL,
    process   INTEGER NOT NULL,
    since     INTEGER NOT NULL,
    until     INTEGER NOT NULL,
    length_ms INTEGER NOT NULL,
    lone      INTEGER,
    jobs      BLOB    NOT NULL
);

CREATE TABLE uniques (
    kind    INTEGER NOT NULL,
    key     TEXT    NOT NULL,
    seq     INTEGER NOT NULL,
    id      BLOB    NOT NULL,
    expires INTEGER,
    PRIMARY KEY (kind, key)
) WITHOUT ROWID;

CREATE INDEX uniques_expiring ON uniques (expires) WHERE expires IS NOT NULL;

CREATE TABLE queues (
    id       INTEGER PRIMARY KEY,
    name     TEXT NOT NULL UNIQUE,
    settings TEXT NOT NULL
);

CREATE TABLE kinds (
    id       INTEGER PRIMARY KEY,
    name     TEXT NOT NULL UNIQUE,
    settings TEXT NOT NULL
);

CREATE TABLE tenants (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
);

-- `grp` because GROUP is a word of SQL.
CREATE TABLE lanes (
    id        INTEGER PRIMARY KEY,
    queue     INTEGER NOT NULL,
    grp       TEXT    NOT NULL,
    connector TEXT,
    priority  INTEGER NOT NULL
);

CREATE TABLE parks (
    scope   TEXT NOT NULL,
    by_whom TEXT NOT NULL,
    reason  TEXT NOT NULL,
    until   INTEGER,
    PRIMARY KEY (scope, by_whom)
) WITHOUT ROWID;

-- Starts in the windows of limiters.
CREATE TABLE starts (
    queue INTEGER NOT NULL,
    at    INTEGER NOT NULL,
    n     INTEGER NOT NULL,
    PRIMARY KEY (queue, at)
) WITHOUT ROWID;
