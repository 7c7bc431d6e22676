-- Schedules and their ledgers. Not breaking: nothing else refers to them.
--
-- `spec` is what people wrote, `state` where the schedule stands; both JSON. A ledger is a ring: a line takes the slot of the one a
-- thousand before it, so it never grows and nothing has to be deleted.
CREATE TABLE schedules (
    id    INTEGER PRIMARY KEY,
    name  TEXT NOT NULL UNIQUE,
    spec  TEXT NOT NULL,
    state TEXT NOT NULL
);

CREATE TABLE schedule_ticks (
    schedule INTEGER NOT NULL,
    slot     INTEGER NOT NULL,
    no       INTEGER NOT NULL,
    body     TEXT    NOT NULL,
    PRIMARY KEY (schedule, slot)
) WITHOUT ROWID;
