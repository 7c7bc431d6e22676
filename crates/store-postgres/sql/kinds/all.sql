-- All kinds. No params.
SELECT id, name, settings FROM tidegate.kinds ORDER BY id
