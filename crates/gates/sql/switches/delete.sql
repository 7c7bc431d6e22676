-- Switches gates on again. $1: domain; $2: gates.
DELETE FROM tidegate.gate_switches WHERE domain = $1 AND gate = ANY ($2::text[])
