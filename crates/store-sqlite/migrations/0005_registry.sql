-- The registry: lanes of kinds with a limit, retry policies, and the history of documents. Not breaking for files: an older
-- program does not open a newer file.
ALTER TABLE lanes ADD COLUMN kind INTEGER;

CREATE TABLE policies (
    id   INTEGER PRIMARY KEY CHECK (id = 1),
    body TEXT NOT NULL
);

-- `document` is the whole registry from then on; none if it was refused.
CREATE TABLE versions (
    number   INTEGER PRIMARY KEY,
    refused  INTEGER NOT NULL,
    info     TEXT    NOT NULL,
    document TEXT
);
