-- Whether the tables are there; they are made together. $1: name of the last one, with its schema, quoted.
-- One boolean.
SELECT to_regclass($1) IS NOT NULL
