-- Scheduled jobs before a number, in no useful order, up to a limit. Params: before, limit.
SELECT seq FROM tidegate.delayed WHERE seq < $1 LIMIT $2
