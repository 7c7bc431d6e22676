-- Writes and takes back what operators say about gates, all at once. What is taken back leaves a word of that: where there is
-- neither a record nor such a word, nothing was ever said, or the server has lost it. KEYS: records, words. ARGV: how long they
-- last, the kind of the records, the time; gate and text of each, without text where it is taken back.
for i = 4, #ARGV, 2 do
    local gate, text, word = ARGV[i], ARGV[i + 1], ARGV[2] .. ' ' .. ARGV[i]
    if text == '' then
        redis.call('HDEL', KEYS[1], gate)
        redis.call('HSET', KEYS[2], word, ARGV[3])
    else
        redis.call('HSET', KEYS[1], gate, text)
        redis.call('HDEL', KEYS[2], word)
    end
end
redis.call('EXPIRE', KEYS[1], ARGV[1])
redis.call('EXPIRE', KEYS[2], ARGV[1])
return 1
