-- Numbers and tenants of the jobs after a number, in order. Params: after, rows to look at. Index: primary key.
SELECT seq, tenant FROM tidegate.jobs WHERE seq > $1 ORDER BY seq LIMIT $2
