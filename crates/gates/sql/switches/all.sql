-- Gates of a domain that are off. $1: domain. Rows: gate, at, who, why.
SELECT gate, at, who, why FROM tidegate.gate_switches WHERE domain = $1 ORDER BY gate
