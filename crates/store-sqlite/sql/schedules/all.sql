-- All schedules: number, name, spec (JSON), state (JSON).
SELECT id, name, spec, state FROM schedules ORDER BY id
