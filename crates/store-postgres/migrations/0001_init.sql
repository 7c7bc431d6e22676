-- The first schema. Not breaking: there was none before.
--
-- A job's row never changes while it lives; what changes is kept beside it, and only for the few jobs that need it:
-- `job_state` (retries, marks, progress), `delayed` (scheduled), `done` (finished), `leases` (running). A job in none
-- of `delayed`, `done` and `leases` is ready; the list of ready jobs is in the memory of every process.
--
-- `head` has one row that is locked by whoever writes and never changed, so that no version of it can pile up behind
-- an old snapshot. `log` has one row per commit: what changed in memory. Its last row is the state of the store.
--
-- Times are milliseconds since 1970. States of finished jobs: 1 completed, 2 dead, 3 cancelled. Numbers of queues,
-- kinds, lanes and tenants are unsigned in the program; here their bits stand for a signed number.

CREATE TABLE tidegate.head (
    one boolean PRIMARY KEY CHECK (one)
);

INSERT INTO tidegate.head (one) VALUES (true);

CREATE TABLE tidegate.meta (
    name  text PRIMARY KEY,
    value bigint NOT NULL
) WITH (fillfactor = 50);

-- Who counts events: a random number of this store.
INSERT INTO tidegate.meta (name, value) VALUES ('origin', (random() * 9007199254740991)::bigint);

-- Emptied by a crash of the server and on a promoted copy, because it is not in the server's log. Whoever finds it
-- empty knows that the last claims, which do not wait for the disk, may have been forgotten, and skips their numbers.
CREATE UNLOGGED TABLE tidegate.alive (
    one boolean PRIMARY KEY CHECK (one)
);

-- `stamp` is random: a process that knows version and stamp of its last row knows that this is still the same
-- history, even if the server was replaced by a copy behind its back. A version that is skipped tells everybody to
-- rebuild the memory from rows. The numbers to go on with, and the time, come with every row.
CREATE TABLE tidegate.log (
    version    bigint PRIMARY KEY,
    stamp      bigint NOT NULL,
    next_seq   bigint NOT NULL,
    next_lease bigint NOT NULL,
    now        bigint NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    changes    bytea NOT NULL
) WITH (
    toast_tuple_target = 8160,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000,
    autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE tidegate.log ALTER COLUMN changes SET STORAGE EXTERNAL;

INSERT INTO tidegate.log (version, stamp, next_seq, next_lease, now, changes) VALUES (0, 0, 1, 1, 0, '');

CREATE TABLE tidegate.jobs (
    seq          bigint  PRIMARY KEY,
    created_at   bigint  NOT NULL,
    run_at       bigint  NOT NULL,
    timeout_ms   bigint  NOT NULL,
    id           uuid    NOT NULL UNIQUE,
    kind         integer NOT NULL,
    lane         integer NOT NULL,
    tenant       integer,
    max_attempts integer,
    extra        text,
    payload      text    NOT NULL
) WITH (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.05
);

CREATE TABLE tidegate.job_state (
    seq         bigint  PRIMARY KEY,
    settled     bigint,
    run_at      bigint,
    lane        integer,
    lone_stalls integer NOT NULL,
    suspect     boolean NOT NULL,
    body        text    NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);

CREATE TABLE tidegate.delayed (
    run_at bigint NOT NULL,
    seq    bigint NOT NULL,
    PRIMARY KEY (run_at, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE TABLE tidegate.done (
    seq     bigint   PRIMARY KEY,
    at      bigint   NOT NULL,
    queue   integer  NOT NULL,
    attempt integer  NOT NULL,
    state   smallint NOT NULL,
    result  text,
    letter  text
) WITH (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.05
);

-- Retention by queue; retention of dead letters; search for the few dead and cancelled among many completed.
CREATE INDEX done_by_queue ON tidegate.done (queue, at, seq) WHERE state <> 2;
CREATE INDEX done_dead     ON tidegate.done (at, seq)        WHERE state = 2;
CREATE INDEX done_rare     ON tidegate.done (state, seq)     WHERE state <> 1;

CREATE TABLE tidegate.leases (
    id        bigint  PRIMARY KEY,
    process   bigint  NOT NULL,
    since     bigint  NOT NULL,
    until     bigint  NOT NULL,
    length_ms bigint  NOT NULL,
    lone      boolean,
    worker    text    NOT NULL,
    jobs      bigint[] NOT NULL
) WITH (
    fillfactor = 50, toast_tuple_target = 8160,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE TABLE tidegate.uniques (
    kind    integer NOT NULL,
    key     text    NOT NULL,
    seq     bigint  NOT NULL,
    id      uuid    NOT NULL,
    expires bigint,
    PRIMARY KEY (kind, key)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX uniques_expiring ON tidegate.uniques (expires) WHERE expires IS NOT NULL;

CREATE TABLE tidegate.queues (
    id       integer PRIMARY KEY,
    name     text NOT NULL UNIQUE,
    settings text NOT NULL
);

CREATE TABLE tidegate.kinds (
    id       integer PRIMARY KEY,
    name     text NOT NULL UNIQUE,
    settings text NOT NULL
);

CREATE TABLE tidegate.tenants (
    id   integer PRIMARY KEY,
    name text NOT NULL UNIQUE
);

-- `grp` because GROUP is a word of SQL.
CREATE TABLE tidegate.lanes (
    id        integer  PRIMARY KEY,
    queue     integer  NOT NULL,
    priority  smallint NOT NULL,
    grp       text     NOT NULL,
    connector text
) WITH (autovacuum_vacuum_scale_factor = 0.05);

-- Scope, owner and the whole are JSON: free text may hold what a text column may not.
CREATE TABLE tidegate.parks (
    scope   text NOT NULL,
    by_whom text NOT NULL,
    body    text NOT NULL,
    PRIMARY KEY (scope, by_whom)
);

-- Starts in the windows of limiters.
CREATE TABLE tidegate.starts (
    queue integer NOT NULL,
    at    bigint  NOT NULL,
    n     integer NOT NULL,
    PRIMARY KEY (queue, at)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- What users enqueue inside their own transactions. `xid` is the transaction that did it: whoever drained everything
-- visible in a snapshot needs to look no further back than that snapshot's oldest running transaction, so dead entries
-- behind an old snapshot are not walked again and again.
CREATE TABLE tidegate.inbox (
    xid    xid8   NOT NULL DEFAULT pg_current_xact_id(),
    number bigint GENERATED ALWAYS AS IDENTITY,
    job    jsonb  NOT NULL,
    PRIMARY KEY (xid, number)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- A small durable shelf of things that are not jobs: keys of the API, presence of workers.
CREATE TABLE tidegate.records (
    shelf   text NOT NULL,
    key     text NOT NULL,
    body    text NOT NULL,
    expires bigint,
    PRIMARY KEY (shelf, key)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
