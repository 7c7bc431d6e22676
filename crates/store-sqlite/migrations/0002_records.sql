-- Records: API keys, who is alive. Not breaking: nothing else refers to them.
CREATE TABLE records (
    shelf   TEXT NOT NULL,
    key     TEXT NOT NULL,
    body    TEXT NOT NULL,
    expires INTEGER,
    PRIMARY KEY (shelf, key)
) WITHOUT ROWID;
