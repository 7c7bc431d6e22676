-- All queues. No params.
SELECT id, name, settings FROM tidegate.queues ORDER BY id
