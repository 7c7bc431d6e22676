-- Takes exactly these rows, as far as they are there and nobody holds them. Params: transactions, numbers.
-- Index: primary key.
WITH held AS (
    SELECT i.xid, i.number
    FROM unnest($1::bigint[], $2::bigint[]) AS n (xid, number)
    JOIN tidegate.inbox AS i ON i.xid = n.xid::text::xid8 AND i.number = n.number
    FOR UPDATE OF i SKIP LOCKED
), gone AS (
    DELETE FROM tidegate.inbox AS i USING held WHERE i.xid = held.xid AND i.number = held.number
    RETURNING i.xid, i.number, i.job::text AS job
)
SELECT job FROM gone ORDER BY xid, number
