-- Forgets the expired records of a shelf. ?1 shelf, ?2 now. A shelf is small.
DELETE FROM records WHERE shelf = ?1 AND expires <= ?2
