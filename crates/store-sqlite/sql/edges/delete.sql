-- Removes an edge. Params: parent, child. Index: primary key, edges_by_child.
DELETE FROM edges WHERE parent = ?1 AND child = ?2
