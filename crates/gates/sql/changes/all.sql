-- What operators did in a domain, the newest last. $1: domain. Rows: at, what, who, why.
SELECT at, what, who, why FROM tidegate.gate_changes WHERE domain = $1 ORDER BY seq
