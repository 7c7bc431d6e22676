-- Writes what operators say about gates: what is said now, and what a process has heard before. Of two words about a gate the later
-- holds, by this server's clock, and what is taken back has its time, too. So what a process has heard changes nothing unless the
-- server has lost it, and then no newer word. What changes is told to every process in the same step, and recorded. KEYS: switches,
-- orders, times of words, changes, ends of orders. ARGV: how long they last, the channel, what is said there, the record of what is
-- said again, how many records are kept, the record of what is said now (empty: none); then each word (`switches GATE`,
-- `orders GATE`), its text (empty: taken back), its time (empty: now), of one that was heard whether it still stops or lets pass
-- anything (1, 0; empty: not heard), and the end of the last of all orders to that breaker (empty: none). Returns which were said
-- again, and then all switches, orders, times and ends, of one moment: what is lost between two looks would seem taken back.
-- A script of its own: it is needed when operators have said something.
local clock, again, lost, changed = redis.call('TIME'), {}, false, false
local texts = { switches = KEYS[1], orders = KEYS[2] }
for i = 7, #ARGV, 5 do
    local word, text, at, heard, till = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3], tonumber(ARGV[i + 4])
    local last = tonumber(redis.call('HGET', KEYS[3], word) or -1)
    local kind, gate = string.match(word, '^(%l+) (.*)$')
    if texts[kind] and (not at or at > last) then
        if heard ~= '' then again[#again + 1] = word end
        lost = lost or heard == '1'
        at, changed = at or math.max(clock[1] * 1000000 + clock[2], last + 1), true
        redis.call('HSET', KEYS[3], word, string.format('%.0f', at))
        if text == '' then redis.call('HDEL', texts[kind], gate) else redis.call('HSET', texts[kind], gate, text) end
    end
    if till and till > tonumber(redis.call('HGET', KEYS[5], gate) or -1) then
        changed = true
        redis.call('HSET', KEYS[5], gate, ARGV[i + 4])
    end
end
local function record(text)
    -- Who heard no answer says it once more.
    if text == '' or redis.call('LINDEX', KEYS[4], -1) == text then return end
    redis.call('RPUSH', KEYS[4], text)
    redis.call('LTRIM', KEYS[4], -ARGV[5], -1)
    redis.call('EXPIRE', KEYS[4], ARGV[1])
end
if lost then record(ARGV[4]) end
record(ARGV[6])
if changed then
    for _, key in ipairs(KEYS) do redis.call('EXPIRE', key, ARGV[1]) end
    redis.call('PUBLISH', ARGV[2], ARGV[3])
end
local function all(key) return redis.call('HGETALL', key) end
return { again, all(KEYS[1]), all(KEYS[2]), all(KEYS[3]), all(KEYS[5]) }
