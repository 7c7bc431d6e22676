-- Switches gates off. $1: domain; $2: gates; $3: when; $4: who; $5: why.
INSERT INTO tidegate.gate_switches (domain, gate, at, who, why)
SELECT $1, gate, $3, $4, $5 FROM unnest($2::text[]) AS gate
ON CONFLICT (domain, gate) DO UPDATE SET at = excluded.at, who = excluded.who, why = excluded.why
