-- Lane and tenant of a job; never reads its payload. Params: seq. Index: primary key.
SELECT lane, tenant FROM jobs WHERE seq = ?1
