-- Adds a row; a version that exists ends the transaction. Params: version, stamp, next seq, next lease, now, effects.
INSERT INTO tidegate.log (version, stamp, next_seq, next_lease, now, effects) VALUES ($1, $2, $3, $4, $5, $6)
