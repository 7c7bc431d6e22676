-- Jobs that are dead or cancelled, newest first. Params: state (2 or 3), before, limit. Index: done_rare.
SELECT seq FROM tidegate.done WHERE state <> 1 AND state = $1 AND seq < $2 ORDER BY seq DESC LIMIT $3
