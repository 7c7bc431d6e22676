-- Orders a breaker to be open for all keys. $1: domain; $2: gate; $3: until when; $4: when; $5: who; $6: why.
INSERT INTO tidegate.gate_orders (domain, gate, until, at, who, why)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (domain, gate) DO UPDATE
SET until = excluded.until, at = excluded.at, who = excluded.who, why = excluded.why
