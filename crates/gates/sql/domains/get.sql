-- A domain with its settings. $1: domain. At most one row: version, layout, gates.
SELECT d.version, d.layout, s.gates
FROM tidegate.gate_domains AS d
JOIN tidegate.gate_sets AS s ON s.domain = d.domain AND s.layout = d.layout
WHERE d.domain = $1
