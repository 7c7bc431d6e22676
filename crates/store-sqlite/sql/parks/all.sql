-- All parks. No params. Index: primary key.
SELECT scope, by_whom, reason, until FROM parks ORDER BY scope, by_whom
