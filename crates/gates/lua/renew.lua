-- Makes a permit last longer. What has lapsed is left to those whose answer can call whoever may have it. args from 3: holder, fence.
-- Reply: when it ends; 0 if it is gone.
operation('renew', function()
  local holder, fence = args[3], tonumber(args[4])
  local key = live_key(holder)
  local raws = command('MGET', P, key)
  open(raws[1])
  read_lease(key, holder, raws[2])
  local lease, shut = held_by(holder, fence)
  local ends = 0
  if lease and not shut then
    lease.ends = max(lease.ends, t + lease.length)
    write_lease(lease)
    command('ZADD', P .. ':e', stamp(lease.ends), end_name(lease))
    -- What counts this lease must not expire before it.
    for _, rule in ipairs(C.scopes) do
      local own = not rule.root and is_counted(lease, rule) and key_of(rule, lease.parts)
      if own then command('EXPIRE', scope_id(rule, own), TTL) end
    end
    ends = lease.ends - offset
  end
  save_places()
  save()
  return ends
end)
