-- Adds a version of the registry. Params: number, refused, info (JSON), document (JSON) or NULL. Index: primary key.
INSERT INTO tidegate.versions (number, refused, info, document) VALUES ($1, $2, $3, $4)
