-- Removes a job's unchanging part. Params: seq. Index: primary key.
DELETE FROM jobs WHERE seq = ?1
