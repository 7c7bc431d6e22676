-- A domain with its settings and the names of the gates that are off. $1: domain.
-- At most one row: version, layout, gates, switches.
SELECT d.version, d.layout, s.gates,
    ARRAY(SELECT w.gate FROM tidegate.gate_switches AS w WHERE w.domain = d.domain ORDER BY w.gate)
FROM tidegate.gate_domains AS d
JOIN tidegate.gate_sets AS s ON s.domain = d.domain AND s.layout = d.layout
WHERE d.domain = $1
