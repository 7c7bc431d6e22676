-- Every scheduled job, in no useful order. No params. Index: primary key.
SELECT seq FROM delayed
