-- Whether the server has not crashed since it was last looked at. No params.
SELECT EXISTS (SELECT FROM tidegate.alive)
