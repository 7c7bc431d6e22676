-- State and time of every finished job, in order; never follows overflow pages. No params. Index: primary key.
SELECT seq, state, at FROM done ORDER BY seq
