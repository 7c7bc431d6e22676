-- Writes a line of a ledger over the one in its slot. Params: schedule, slot, number, body (JSON). Index: primary key.
INSERT INTO schedule_ticks (schedule, slot, no, body) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (schedule, slot) DO UPDATE SET no = ?3, body = ?4
