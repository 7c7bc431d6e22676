-- Who holds keys. Params: kinds, keys. Index: primary key.
SELECT u.kind, u.key, u.seq, u.id, u.expires
FROM unnest($1::integer[], $2::text[]) AS n (kind, key)
JOIN tidegate.uniques AS u ON u.kind = n.kind AND u.key = n.key
