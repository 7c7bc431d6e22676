-- Jobs that are not finished, or of whose end somebody has yet to be told (4: they know that it was dead), and have edges to
-- others, with how many; read once at start. No params. Index: primary keys.
SELECT e.parent, count(*) FROM edges AS e
LEFT JOIN untold AS u ON u.seq = e.parent
WHERE CASE WHEN u.seq IS NOT NULL THEN u.ending <> 4
      ELSE NOT EXISTS (SELECT 1 FROM done AS d WHERE d.seq = e.parent)
       AND EXISTS (SELECT 1 FROM jobs AS j WHERE j.seq = e.parent) END
GROUP BY e.parent
