-- Where a duty that comes round stands (JSON). Params: name. Index: primary key.
SELECT body FROM tidegate.rounds WHERE name = $1
