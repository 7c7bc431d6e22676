-- All schedules: number, name, spec (JSON), state (JSON).
SELECT id, name, spec, state FROM tidegate.schedules ORDER BY id
