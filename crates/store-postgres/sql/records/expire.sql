-- Forgets what has expired on a shelf. Params: shelf, now. Index: primary key.
DELETE FROM tidegate.records WHERE shelf = $1 AND expires <= $2
