-- Removes jobs. Params: numbers. Index: primary key.
DELETE FROM tidegate.jobs WHERE seq = ANY($1)
