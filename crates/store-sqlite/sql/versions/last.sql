-- The last number; 0 if there is none. No params. Index: primary key.
SELECT coalesce(max(number), 0) FROM versions
