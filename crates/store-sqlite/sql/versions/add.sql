-- Adds a version of the registry. ?1 number, ?2 refused, ?3 info (JSON), ?4 document (JSON) or NULL. Index: primary key.
INSERT INTO versions (number, refused, info, document) VALUES (?1, ?2, ?3, ?4)
