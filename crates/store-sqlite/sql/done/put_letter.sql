-- Changes the dead-letter side of a finished job. Params: seq, letter (JSON). Index: primary key.
UPDATE done SET letter = ?2 WHERE seq = ?1
