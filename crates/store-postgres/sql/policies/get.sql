-- The registry's retry policies (JSON), if it has any. No params. Index: primary key.
SELECT body FROM tidegate.policies WHERE id = 1
