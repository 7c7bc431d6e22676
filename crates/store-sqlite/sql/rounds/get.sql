-- Where a duty that comes round stands (JSON). Params: name. Index: primary key.
SELECT body FROM rounds WHERE name = ?1
