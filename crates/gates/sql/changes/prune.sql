-- Keeps the newest records of a domain. $1: domain; $2: how many.
DELETE FROM tidegate.gate_changes
WHERE domain = $1
    AND seq <= (SELECT seq FROM tidegate.gate_changes WHERE domain = $1 ORDER BY seq DESC OFFSET $2 LIMIT 1)
