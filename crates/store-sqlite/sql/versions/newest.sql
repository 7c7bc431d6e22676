-- The newest versions without their documents, newest first. ?1 most rows. Index: primary key.
SELECT info FROM versions ORDER BY number DESC LIMIT ?1
