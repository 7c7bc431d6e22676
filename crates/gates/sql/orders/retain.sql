-- Forgets orders to breakers that are gone. $1: domain; $2: the breakers it has.
DELETE FROM tidegate.gate_orders WHERE domain = $1 AND NOT gate = ANY ($2::text[])
