-- All lanes. No params.
SELECT id, queue, priority, grp, connector, kind FROM tidegate.lanes ORDER BY id
