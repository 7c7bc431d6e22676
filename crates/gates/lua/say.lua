-- Writes what operators say about gates: what is said now, and what a process has heard before. Of two words about a gate the later
-- holds, by this server's clock, and what is taken back has its time, too. So what a process has heard changes nothing unless the
-- server has lost it, and then no newer word. What changes is told to every process in the same step. KEYS: switches, orders, times
-- of words, changes. ARGV: how long they last, the channel, what is said there, the record of what is said again, how many records
-- are kept; then each word (`switches GATE`, `orders GATE`), its text (empty: taken back), its time (empty: now), and of one that was
-- heard whether it still stops or lets pass anything (1, 0; empty: not heard). Returns which were said again, and then all switches,
-- orders and times, of one moment: what is lost between two looks would seem taken back.
-- A script of its own: it is needed when operators have said something.
local clock, again, lost, changed = redis.call('TIME'), {}, false, false
for i = 6, #ARGV, 4 do
    local word, text, at, heard = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3]
    local last = tonumber(redis.call('HGET', KEYS[3], word) or -1)
    if not at or at > last then
        if heard ~= '' then again[#again + 1] = word end
        lost = lost or heard == '1'
        -- Between two words there is room for the time at which the first was carried out.
        at, changed = at or math.max(clock[1] * 1000000 + clock[2], last + 2), true
        redis.call('HSET', KEYS[3], word, string.format('%.0f', at))
        local kind, gate = string.match(word, '^(%l+) (.*)$')
        local key = KEYS[kind == 'switches' and 1 or 2]
        if text == '' then redis.call('HDEL', key, gate) else redis.call('HSET', key, gate, text) end
    end
end
if lost then
    redis.call('RPUSH', KEYS[4], ARGV[4])
    redis.call('LTRIM', KEYS[4], -ARGV[5], -1)
end
if changed then
    for _, key in ipairs(KEYS) do redis.call('EXPIRE', key, ARGV[1]) end
    redis.call('PUBLISH', ARGV[2], ARGV[3])
end
return { again, redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2]), redis.call('HGETALL', KEYS[3]) }
