-- The newest versions without their documents, newest first. Params: most rows. Index: primary key.
SELECT info FROM tidegate.versions ORDER BY number DESC LIMIT $1
