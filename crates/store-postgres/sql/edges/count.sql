-- How many edges there are; read once at start. No params.
SELECT count(*) FROM tidegate.edges
