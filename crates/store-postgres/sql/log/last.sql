-- The newest row. No params. Index: primary key.
SELECT version, stamp, next_seq, next_lease, now FROM tidegate.log ORDER BY version DESC LIMIT 1
