-- Numbers of jobs by id. Params: ids. Index: jobs_id_key.
SELECT id, seq FROM tidegate.jobs WHERE id = ANY($1)
