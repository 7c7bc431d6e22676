-- Waits for its turn to write. The answer may be older than the lock: what others wrote is read by the next statement.
-- No params. Result: whether the server has not crashed since it was last looked at.
SELECT EXISTS (SELECT FROM tidegate.alive) FROM tidegate.head WHERE one FOR UPDATE
