-- Takes back an order, and forgets those whose time is over. $1: domain; $2: gate; $3: now.
DELETE FROM tidegate.gate_orders WHERE domain = $1 AND (gate = $2 OR until <= $3)
