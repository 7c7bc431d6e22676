-- A version with its document. Params: number. Index: primary key.
SELECT info, document FROM tidegate.versions WHERE number = $1
