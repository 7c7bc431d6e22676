-- Removes a park. Params: scope, owner (JSON). Index: primary key.
DELETE FROM tidegate.parks WHERE scope = $1 AND by_whom = $2
