-- Frees a key, if this job holds it. Params: kind, key, seq. Index: primary key.
DELETE FROM uniques WHERE kind = ?1 AND key = ?2 AND seq = ?3
