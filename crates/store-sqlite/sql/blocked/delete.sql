-- These jobs are not blocked any more. Params: an array of seqs. Index: primary key.
DELETE FROM blocked WHERE seq IN rarray(?1)
