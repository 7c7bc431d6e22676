-- Writes where schedules stand, each number once. Params: one array per column. Index: primary key.
UPDATE tidegate.schedules AS s SET state = new.state
FROM unnest($1::integer[], $2::text[]) AS new (id, state) WHERE s.id = new.id
