-- Breakers of a domain that are open for all keys by order now. $1: domain; $2: now. Rows: gate, until, at, who, why.
SELECT gate, until, at, who, why FROM tidegate.gate_orders WHERE domain = $1 AND until > $2 ORDER BY gate
