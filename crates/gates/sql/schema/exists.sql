-- Whether the tables are there. Those of a version are made together. $1: names of the last of each, with their schema, quoted.
-- One boolean.
SELECT bool_and(to_regclass(name) IS NOT NULL) FROM unnest($1::text[]) AS name
