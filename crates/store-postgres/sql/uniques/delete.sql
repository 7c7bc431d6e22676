-- Frees keys, if these jobs hold them. Params: kinds, keys, numbers. Index: primary key.
DELETE FROM tidegate.uniques AS u USING unnest($1::integer[], $2::text[], $3::bigint[]) AS n (kind, key, seq)
WHERE u.kind = n.kind AND u.key = n.key AND u.seq = n.seq
