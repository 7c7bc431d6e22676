-- Forgets settings that no partition was written under, once those in force are so old that no transaction from before
-- can be open. $1: that time.
DELETE FROM tidegate.gate_sets AS s
USING tidegate.gate_domains AS d
WHERE d.domain = s.domain AND d.layout <> s.layout AND d.layout < $1
    AND NOT EXISTS (
        SELECT FROM tidegate.gate_partitions AS p WHERE p.domain = s.domain AND p.layout = s.layout
    )
