-- Every blocked job, in order. No params. Index: primary key.
SELECT seq FROM blocked ORDER BY seq
