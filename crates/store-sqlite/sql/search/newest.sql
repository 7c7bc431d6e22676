-- The newest job before a number. Params: before. Index: primary key.
SELECT max(seq) FROM jobs WHERE seq < ?1
