-- Rows in the log. No params. Index: primary key.
SELECT (SELECT version FROM tidegate.log ORDER BY version DESC LIMIT 1) -
       (SELECT version FROM tidegate.log ORDER BY version LIMIT 1) + 1
