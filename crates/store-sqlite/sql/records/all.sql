-- The records of a shelf that live, by key. ?1 shelf, ?2 now, ?3 most rows.
SELECT key, body, expires FROM records WHERE shelf = ?1 AND (expires IS NULL OR expires > ?2) ORDER BY key LIMIT ?3
