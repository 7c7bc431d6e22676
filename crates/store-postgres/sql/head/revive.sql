-- Says that the crash was looked after. No params.
INSERT INTO tidegate.alive (one) VALUES (true) ON CONFLICT DO NOTHING
