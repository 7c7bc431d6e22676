-- What users enqueued in transactions that have committed, and the oldest transaction that may still bring more: where
-- to look from next time. Params: where to look from (a transaction), limit. Index: primary key.
SELECT i.xid::text::bigint, i.number, octet_length(i.job::text), pg_snapshot_xmin(pg_current_snapshot())::text::bigint
FROM (SELECT) AS one
LEFT JOIN LATERAL (
    SELECT xid, number, job FROM tidegate.inbox
    WHERE xid >= $1::bigint::text::xid8 ORDER BY xid, number LIMIT $2
) AS i ON true
