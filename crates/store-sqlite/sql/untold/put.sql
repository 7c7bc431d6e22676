-- Somebody has yet to be told of the end of a job. Params: seq, id, ending. Index: primary key.
INSERT INTO untold (seq, id, ending) VALUES (?1, ?2, ?3) ON CONFLICT (seq) DO UPDATE SET id = ?2, ending = ?3
