-- A domain with its settings, the names of the gates that are off, and the breakers that are open by order, until when. $1: domain.
-- At most one row: version, layout, gates, switches, orders, their ends.
SELECT d.version, d.layout, s.gates,
    ARRAY(SELECT w.gate FROM tidegate.gate_switches AS w WHERE w.domain = d.domain ORDER BY w.gate),
    ARRAY(SELECT o.gate FROM tidegate.gate_orders AS o WHERE o.domain = d.domain ORDER BY o.gate),
    ARRAY(SELECT o.until FROM tidegate.gate_orders AS o WHERE o.domain = d.domain ORDER BY o.gate)
FROM tidegate.gate_domains AS d
JOIN tidegate.gate_sets AS s ON s.domain = d.domain AND s.layout = d.layout
WHERE d.domain = $1
