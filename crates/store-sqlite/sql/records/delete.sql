-- Forgets a record. ?1 shelf, ?2 key.
DELETE FROM records WHERE shelf = ?1 AND key = ?2
