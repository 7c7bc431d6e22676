-- All parks. No params.
SELECT body FROM tidegate.parks ORDER BY scope, by_whom
