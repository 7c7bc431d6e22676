-- Number of the job with this id. Params: id (16 bytes). Index: unique id.
SELECT seq FROM jobs WHERE id = ?1
