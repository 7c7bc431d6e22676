-- Lines of a ledger with smaller numbers, newest first. Sorts a ring of at most a thousand. Params: schedule, number, limit. Index: primary key.
SELECT body FROM tidegate.schedule_ticks WHERE schedule = $1 AND no < $2 ORDER BY no DESC LIMIT $3
