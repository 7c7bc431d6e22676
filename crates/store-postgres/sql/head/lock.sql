-- Waits for its turn to write. The answer may be older than the lock: what others wrote is read by the next statement.
-- No params. Result: whether the server has not crashed since it was last looked at; the oldest version of the program that
-- may take turns, which is that of the row itself and never older than the lock.
SELECT EXISTS (SELECT FROM tidegate.alive), readable_from FROM tidegate.head WHERE one FOR UPDATE
