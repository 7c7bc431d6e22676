-- Forgets what an earlier version kept without a tenant ('' is nobody's), unless jobs of another tenant than this one wait for it: those
-- wait for nobody else's. What only jobs of no tenant wait for may be anybody's. Params: tenant, limit.
-- Walks the table, which has only what unfinished jobs need; then primary keys.
DELETE FROM kept
WHERE seq IN (
    SELECT k.seq
    FROM kept AS k
    WHERE k.tenant IS NULL
      AND NOT EXISTS (
        SELECT 1 FROM edges AS e JOIN jobs AS j ON j.seq = e.child
        WHERE e.parent = k.seq
          AND j.tenant <> coalesce((SELECT id FROM tenants WHERE name = ?1), -1))
    LIMIT ?2)
