-- Schedules and their ledgers. Breaking: a process that knows nothing of schedules would end their jobs without saying so, and their
-- next runs would wait for ever.
--
-- `spec` is what people wrote, `state` where the schedule stands; both JSON. A ledger is a ring: a line takes the slot of the one a
-- thousand before it, so it never grows and nothing has to be deleted. Rows are rewritten in place as long as pages have room.
CREATE TABLE tidegate.schedules (
    id    integer PRIMARY KEY,
    name  text NOT NULL UNIQUE,
    spec  text NOT NULL,
    state text NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE tidegate.schedule_ticks (
    schedule integer NOT NULL,
    slot     integer NOT NULL,
    no       bigint  NOT NULL,
    body     text    NOT NULL,
    PRIMARY KEY (schedule, slot)
) WITH (fillfactor = 50, autovacuum_vacuum_cost_delay = 0);
