-- Adds an edge. Params: parent, child. Index: primary key, edges_by_child.
INSERT OR FAIL INTO edges (parent, child) VALUES (?1, ?2)
