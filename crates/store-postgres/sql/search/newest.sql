-- The newest job before a number. Params: before. Index: primary key.
SELECT seq FROM tidegate.jobs WHERE seq < $1 ORDER BY seq DESC LIMIT 1
