-- Settings of an earlier time. $1: domain; $2: layout. At most one row.
SELECT gates FROM tidegate.gate_sets WHERE domain = $1 AND layout = $2
