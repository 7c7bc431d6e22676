-- Lanes and tenants of jobs. Params: numbers. Index: primary key.
SELECT seq, lane, tenant FROM tidegate.jobs WHERE seq = ANY($1)
