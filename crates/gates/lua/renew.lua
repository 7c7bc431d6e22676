-- Makes a permit last longer. ARGV from 4: holder, fence. Reply: when it ends; 0 if it is gone.
local holder, fence = ARGV[4], tonumber(ARGV[5])
local raws = redis.call('MGET', P, live_key(holder))
open(raws[1])
read_lease(live_key(holder), holder, raws[2])
purge({})
local lease, shut = held_by(holder, fence)
local ends = 0
if lease and not shut then
  lease.ends = max(lease.ends, t + lease.length)
  write_lease(lease)
  redis.call('ZADD', P .. ':e', text(lease.ends), end_name(lease))
  -- What counts this lease must not expire before it.
  for _, rule in ipairs(C.scopes) do
    local key = not rule.root and lease.counted[rule.id] and key_of(rule, lease.parts)
    if key then redis.call('EXPIRE', P .. ':s:' .. rule.id .. ':' .. key, TTL) end
  end
  ends = lease.ends - offset
end
save_places()
save()
return ends
