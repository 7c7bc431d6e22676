-- Who holds a key. Params: kind, key. Index: primary key.
SELECT seq, id, expires FROM uniques WHERE kind = ?1 AND key = ?2
