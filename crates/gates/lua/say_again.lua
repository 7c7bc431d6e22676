-- Says again what a process has heard and the server has lost: of each gate about which nothing is said and nothing was taken
-- back (say.lua). Leaves a record of that. KEYS: switches, orders, words, changes. ARGV: how long they last, the record, the number
-- of switches; gate and text of each switch, then of each order. Returns how many were said again, and then all switches and
-- orders that there are: of one time. A script of its own: it is needed when operators have said something.
local said = 0
for i = 4, #ARGV, 2 do
    local switch = (i - 4) / 2 < tonumber(ARGV[3])
    local key, word = KEYS[switch and 1 or 2], (switch and 'switches ' or 'orders ') .. ARGV[i]
    if redis.call('HEXISTS', KEYS[3], word) == 0 and redis.call('HSETNX', key, ARGV[i], ARGV[i + 1]) == 1 then
        said = said + 1
    end
end
if said > 0 then
    redis.call('RPUSH', KEYS[4], ARGV[2])
    for _, key in ipairs(KEYS) do redis.call('EXPIRE', key, ARGV[1]) end
end
return { said, redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2]) }
