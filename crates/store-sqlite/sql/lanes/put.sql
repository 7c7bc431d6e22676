-- Writes a lane. Params: id, queue, group, connector, priority. Index: primary key.
INSERT INTO lanes (id, queue, grp, connector, priority) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (id) DO UPDATE SET queue = ?2, grp = ?3, connector = ?4, priority = ?5
