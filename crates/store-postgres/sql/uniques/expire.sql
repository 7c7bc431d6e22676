-- Frees the keys whose period has been over for longest. Params: now, limit. Index: uniques_expiring, primary key.
DELETE FROM tidegate.uniques WHERE (kind, key) IN (
    SELECT kind, key FROM tidegate.uniques WHERE expires IS NOT NULL AND expires <= $1 ORDER BY expires LIMIT $2
)
