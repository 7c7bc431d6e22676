-- Numbers of the jobs with these ids, in the order of the array; NULL where there is none. Params: an array of ids. Index: unique id.
SELECT j.seq FROM rarray(?1) AS n LEFT JOIN jobs AS j ON j.id = n.value
