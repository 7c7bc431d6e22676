-- Forgets a record. Params: shelf, key. Index: primary key.
DELETE FROM tidegate.records WHERE shelf = $1 AND key = $2
