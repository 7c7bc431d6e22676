-- Writes a lane. Params: id, queue, group, connector, priority, kind. Index: primary key.
INSERT INTO lanes (id, queue, grp, connector, priority, kind) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (id) DO UPDATE SET queue = ?2, grp = ?3, connector = ?4, priority = ?5, kind = ?6
