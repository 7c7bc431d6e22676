-- The registry: lanes of kinds with a limit, retry policies, and the history of documents. Breaking: an older process would not
-- keep a kind's limit, nor read its settings.
ALTER TABLE tidegate.lanes ADD COLUMN kind integer;

CREATE TABLE tidegate.policies (
    id   integer PRIMARY KEY CHECK (id = 1),
    body text NOT NULL
);

-- `document` is the whole registry from then on; none if it was refused.
CREATE TABLE tidegate.versions (
    number   bigint  PRIMARY KEY,
    refused  boolean NOT NULL,
    info     text    NOT NULL,
    document text
);
