-- Blocked jobs before a number, newest first. Params: before, limit. Index: primary key.
SELECT seq FROM tidegate.blocked WHERE seq < $1 ORDER BY seq DESC LIMIT $2
