-- Makes the tables of the gates where they are missing. Runs in one transaction, under the lock that everybody takes
-- who changes the schema, so that processes that start together do it once. Changes nothing if all is there.
--
-- A domain's row changes only when an operator changes something: every operation reads it. A partition's row is
-- written by every operation on it, so nothing that changes is indexed and there is room beside it: updates are HOT and
-- dead versions go when the page is next read. States are small and short-lived: they are not compressed, and stay in
-- the row up to half a page. Vacuum comes early, because a row that is hot leaves thousands of versions per second when
-- an old snapshot keeps them alive.
--
-- Times are microseconds since 1970 by the server's clock.

CREATE TABLE IF NOT EXISTS tidegate.gate_domains (
    domain  text PRIMARY KEY,
    -- Grows with every change of settings or switches: whoever knows another one reads them again.
    version bigint NOT NULL,
    -- The settings in force, in `gate_sets`.
    layout  bigint NOT NULL,
    -- Whether the domain has had a partition that was not forgotten on purpose.
    used    boolean NOT NULL DEFAULT false,
    -- When state of this domain was last found missing: partitions made since start without credit of then.
    lost_at bigint
);

CREATE TABLE IF NOT EXISTS tidegate.gate_sets (
    domain text NOT NULL,
    layout bigint NOT NULL,
    -- The settings as JSON text, as they were given.
    gates  text NOT NULL,
    PRIMARY KEY (domain, layout)
);

CREATE TABLE IF NOT EXISTS tidegate.gate_switches (
    domain text NOT NULL,
    gate   text NOT NULL,
    at     bigint NOT NULL,
    who    text NOT NULL,
    why    text NOT NULL,
    PRIMARY KEY (domain, gate)
);

CREATE TABLE IF NOT EXISTS tidegate.gate_changes (
    domain text NOT NULL,
    seq    bigint GENERATED ALWAYS AS IDENTITY,
    at     bigint NOT NULL,
    what   text NOT NULL,
    who    text NOT NULL,
    why    text NOT NULL,
    PRIMARY KEY (domain, seq)
);

CREATE TABLE IF NOT EXISTS tidegate.gate_partitions (
    domain      text NOT NULL,
    part        text NOT NULL,
    -- Random numbers of the last eight transactions that wrote it, the newest first: the first names the content, and
    -- whoever lost a connection during its commit finds out whether it was done.
    marks       bigint[] NOT NULL,
    -- The settings under which the state was written.
    layout      bigint NOT NULL,
    used_at     bigint NOT NULL,
    -- When the next lease or place ends.
    due_at      bigint,
    keys        integer NOT NULL DEFAULT 0,
    leases      integer NOT NULL DEFAULT 0,
    quarantined integer NOT NULL DEFAULT 0,
    places      integer NOT NULL DEFAULT 0,
    -- A byte for the format, then the state as the program writes it.
    state       bytea NOT NULL,
    PRIMARY KEY (domain, part)
) WITH (
    fillfactor = 50,
    toast_tuple_target = 4080,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0,
    toast.autovacuum_vacuum_threshold = 5000,
    toast.autovacuum_vacuum_cost_delay = 0
);

-- Only where it is not so: whoever waits to alter this table stops every call, also if nothing changes.
DO $$
BEGIN
    IF EXISTS (
        SELECT FROM pg_attribute
        WHERE attrelid = 'tidegate.gate_partitions'::regclass AND attname = 'state' AND attstorage <> 'e'
    ) THEN
        ALTER TABLE tidegate.gate_partitions ALTER COLUMN state SET STORAGE EXTERNAL;
    END IF;
END
$$;

-- What each process has seen, for others to look at. Nothing is decided by it and it is written every second: a crash of the
-- server may lose it.
CREATE UNLOGGED TABLE IF NOT EXISTS tidegate.gate_seen (
    process  text PRIMARY KEY,
    at       bigint NOT NULL,
    -- JSON, at most 64 kB.
    snapshot text NOT NULL
);

-- Breakers that an operator has opened for all keys, also for those that come.
CREATE TABLE IF NOT EXISTS tidegate.gate_orders (
    domain text NOT NULL,
    gate   text NOT NULL,
    until  bigint NOT NULL,
    at     bigint NOT NULL,
    who    text NOT NULL,
    why    text NOT NULL,
    PRIMARY KEY (domain, gate)
);
