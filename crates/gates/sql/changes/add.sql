-- Records what an operator did, by the server's clock. $1: domain; $2: what; $3: who; $4: why.
INSERT INTO tidegate.gate_changes (domain, at, what, who, why)
VALUES ($1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, $2, $3, $4)
