-- All lanes. No params.
SELECT id, queue, priority, grp, connector FROM tidegate.lanes ORDER BY id
