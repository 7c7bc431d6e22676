-- Scheduled jobs before a number, in no useful order, up to a limit. Params: before, limit. Index: primary key.
SELECT seq FROM delayed WHERE seq < ?1 LIMIT ?2
