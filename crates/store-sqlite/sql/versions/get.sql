-- A version with its document. ?1 number. Index: primary key.
SELECT info, document FROM versions WHERE number = ?1
