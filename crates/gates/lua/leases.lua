-- Leases. As text: fence, admitted_at, use_by, ends, what was left, three numbers that a reported level compares (`mark`); the nine
-- numbers of the call as they were given to `admit`; whether it is in quarantine, how many ids follow; ids of the gates that hold
-- something for it, and of the breakers it is a probe of; ids of the scopes that count it, and the parts of its target.
-- Doubles begin with their highest byte: so the fence in front is the name of the lease among the ends, too.
local LEASE, LEASE_BYTES = '>dddddddddddddddddBBB', 17 * 8 + 3

-- A set of the numbers in a packed list.
local function set_of(packed, n)
  if n == 0 then return NOTHING end
  if packed == C.all_packed then return C.all_ids end
  local set = {}
  for i = 0, n - 1 do set[(struct.unpack('<d', packed, i * 8 + 1))] = true end
  return set
end

local function read_lease(key, holder, raw)
  if not raw then
    leases[key] = false
    return false
  end
  local fence, admitted_at, use_by, ends, _, answered, admitted, sent, ask, cost, at, length, _, _, _, process, _, shut, held, probes =
    struct.unpack(LEASE, raw)
  local middle = LEASE_BYTES + held * 8
  local lease = {
    fence = fence, ask = ask, level = at, process = process, cost = cost, length = length, admitted_at = admitted_at,
    use_by = use_by, ends = ends, mark = {answered, admitted, sent}, shut = shut, holder = holder, key = key,
    held_packed = sub(raw, LEASE_BYTES + 1, middle), probes_packed = sub(raw, middle + 1, middle + probes * 8),
    tail = sub(raw, middle + probes * 8 + 1),
  }
  local bar = string.find(lease.tail, '|', 1, true)
  lease.held, lease.probes = set_of(lease.held_packed, held), set_of(lease.probes_packed, probes)
  lease.counted = sub(lease.tail, 1, bar - 1)
  if sub(lease.tail, bar + 1) == target_text then
    lease.parts = target
  else
    lease.parts = {string.match(lease.tail, '([^/]*)/([^/]*)/([^/]*)/([^/]*)/([^/]*)', bar + 1)}
  end
  leases[key] = lease
  return lease
end

local function write_lease(l)
  local mark = l.mark
  leases[l.key] = l
  command('SETEX', l.key, C.ttl_text, struct.pack(
    LEASE, l.fence, l.admitted_at, l.use_by, l.ends, 0, mark[1], mark[2], mark[3], l.ask, l.cost, l.level, l.length, 0, 0, 0, l.process,
    0, l.shut, #l.held_packed / 8, #l.probes_packed / 8
  ) .. l.held_packed .. l.probes_packed .. l.tail)
end

local function is_counted(lease, rule) return string.find(lease.counted, rule.mark, 1, true) end

local function live_key(holder) return P .. ':l:' .. holder end
local function shut_key(fence) return P .. ':h:' .. text(fence) end
local function end_name(lease) return member(lease.fence, (lease.shut == 1 and 'h' or 'l') .. lease.holder) end
-- Of such a name: the holder, and the key of the lease.
local function lease_in(name)
  local holder = sub(name, 10)
  if sub(name, 9, 9) == 'l' then return holder, live_key(holder) end
  return holder, shut_key(struct.unpack('>d', name))
end

local function lease_of(key, holder)
  local lease = leases[key]
  if lease == nil then lease = read_lease(key, holder, command('GET', key)) end
  return lease
end

local function end_at(lease)
  command('ZADD', P .. ':e', stamp(lease.ends), end_name(lease))
  if H[5] == 0 or lease.ends < H[5] then H[5] = lease.ends end
  lease_added = lease_added + 1
end

local function scope_of(lease, s)
  local sc
  if lease.parts == target then
    sc = target_scopes[s]
  else
    local key = key_of(C.scopes[s], lease.parts)
    sc = key and scope(s, key)
  end
  if sc then sc.dirty = true end
  return sc
end

-- Buckets and breakers hear that a call is over, without an observation and without an opinion.
local function end_call(lease, actual)
  for _, gate in ipairs(C.gates) do
    if (gate.k == 'level' or gate.k == 'breaker') and lease.held[gate.id] then
      local sc = scope_of(lease, gate.s)
      if sc then
        local g, r = gate_state(sc, gate), settings(gate, sc.key)
        if gate.k == 'level' then
          level.advance(g, r)
          level_settle(g, 0, lease.mark, lease.cost, actual, false, nil)
        else
          breaker_hear(g, r, lease.process, lease.fence, lease.probes[gate.id], 'neutral')
        end
      end
    end
  end
end

local function holds_pool(lease)
  for _, gate in ipairs(C.pools) do
    if lease.held[gate.id] then return true end
  end
  return false
end

local give_back
do -- a function has 200 locals at most
local function forget_lease(lease)
  command('DEL', lease.key)
  command('ZREM', P .. ':e', end_name(lease))
  leases[lease.key] = false
  H[7] = H[7] - 1
  if lease.shut == 1 then H[8] = H[8] - 1 end
  if H[7] == 0 then H[5] = 0 end
end

-- Takes a lease away and gives back its slots.
function give_back(lease, touched)
  forget_lease(lease)
  for _, gate in ipairs(C.pools) do
    if lease.held[gate.id] then
      local sc = scope_of(lease, gate.s)
      if sc then pool_take(gate_state(sc, gate), lease.level, -1) end
    end
  end
  for s, rule in ipairs(C.scopes) do
    if is_counted(lease, rule) then
      local sc = scope_of(lease, s)
      if sc then
        sc.live = max(sc.live - 1, 0)
        if sc.count > 0 then touched[#touched + 1] = sc end
      end
    end
  end
end
end

local function quarantine(lease, till)
  command('DEL', lease.key)
  command('ZREM', P .. ':e', end_name(lease))
  leases[lease.key] = false
  lease.shut, lease.ends, lease.key = 1, till, shut_key(lease.fence)
  H[8] = H[8] + 1
  write_lease(lease)
  end_at(lease)
end

-- A lease has come to its end without being settled.
local function lapse(lease, touched)
  if lease.shut == 0 then
    local ends = lease.ends
    end_call(lease, false)
    if C.quarantine > 0 and holds_pool(lease) then return quarantine(lease, ends + C.quarantine) end
  end
  give_back(lease, touched)
end

-- Clears away what has lapsed, up to a bound; whether more is due, and how many went.
local function purge(touched)
  local gone = 0
  if H[5] ~= 0 and H[5] <= t then
    local left = BATCH
    while left > 0 do
      local due = command('ZRANGEBYSCORE', P .. ':e', '-inf', t, 'LIMIT', 0, left)
      if #due == 0 then break end
      for _, name in ipairs(due) do
        local holder, key = lease_in(name)
        local lease = lease_of(key, holder)
        if lease then
          lapse(lease, touched)
          gone = gone + 1
        else
          command('ZREM', P .. ':e', name)
        end
        left = left - 1
      end
    end
    local next = command('ZRANGE', P .. ':e', 0, 0, 'WITHSCORES')
    H[5] = next[2] and tonumber(next[2]) or 0
  end
  if H[6] ~= 0 and H[6] <= t then
    for _, holder in ipairs(command('ZRANGEBYSCORE', P .. ':q', '-inf', t, 'LIMIT', 0, BATCH)) do
      local place = place_of(holder)
      if place then
        remove_place(place, false, touched)
        gone = gone + 1
      else
        command('ZREM', P .. ':q', holder)
      end
    end
    local next = command('ZRANGE', P .. ':q', 0, 0, 'WITHSCORES')
    H[6] = next[2] and tonumber(next[2]) or 0
  end
  return (H[5] ~= 0 and H[5] <= t) or (H[6] ~= 0 and H[6] <= t), gone
end

-- Free places of the tightest pool of a scope key; nil without one.
local function free(sc)
  local least
  for _, gate in ipairs(sc.rule.pools) do
    if not is_off(gate) then
      local n = pool_free(gate_state(sc, gate), settings(gate, sc.key))
      if not least or n < least then least = n end
    end
  end
  return least
end

-- Those who were called and do not come let others pass soon, whatever time they were told. `next`: when a place ends next.
function pool.expect(holders, next)
  if not holders[1] then return next end
  local ends, list = t + C.grace, {}
  local score = stamp(ends)
  for i = 1, #holders do list[2 * i - 1], list[2 * i] = score, holders[i] end
  command('ZADD', P .. ':q', 'XX', 'LT', unpack(list))
  if next == 0 or ends < next then return ends end
  return next
end

-- Adds these, by their names in a line, to those who should ask now; in `told` those of other processes by channel. `seen`: who was
-- named before, nil if there is no other line.
local function call_up(woken, told, seen, names, most)
  local own = args[2] .. ' '
  local to = 8 + #own
  for i = 1, #names do
    if #woken >= most then return end
    local name = names[i]
    local holder, channel
    if sub(name, 9, to) == own then holder = sub(name, to + 1) else holder, channel = waiter_in(name) end
    if not seen or not seen[holder] then
      woken[#woken + 1] = holder
      if seen then seen[holder] = true end
      if channel then told[channel] = told[channel] and told[channel] .. ' ' .. holder or holder end
    end
  end
end

-- Processes other than the caller's hear it at once.
local function tell(told)
  for channel, names in pairs(told) do command('PUBLISH', channel, names) end
end

-- Whether something may have happened to what the first of this scope key's line waits for; for a bucket: there is enough for it, or will be
-- much sooner than it was told, because something came back, the bucket fills faster by now, or those before it have gone. Where time alone
-- decides, everybody has been told the time. Who was told the time of a wider scope's gate asks, too, if nothing here is in its way.
-- `bucket`: only if it waits for a bucket.
local function first_hopes(sc, bucket)
  local name = first(sc, 1)[1]
  local place = name and place_of((waiter_in(name)))
  if not place then return false end
  local kind = sc.rule.kinds[place.gate] or (sc.rule.event and 'event') or (sc.rule.level and 'elsewhere')
  if level.events[kind] then return not bucket end
  if kind ~= 'level' and (bucket or kind ~= 'elsewhere') then return false end
  local sooner = level.sooner(place.retry_at)
  if sc.cool > t and sc.cool >= sooner then return false end
  for _, gate in ipairs(sc.rule.list) do
    if gate.k == 'level' and not is_off(gate) and not level.hopes(gate_state(sc, gate), place, sooner) then return false end
  end
  return true
end

-- Of these, from number `from` on, those that wait for a gate of this scope, by their holders; added to `due`. What an operation has
-- changed of places is not written yet (`fresh`: it has changed none).
function pool.wait_here(due, rule, holders, from, fresh)
  for i = from, #holders do
    local gate = true
    if not rule.alone then
      if fresh then
        local raw = command('GET', P .. ':p:' .. holders[i])
        gate = raw and cmsgpack.unpack(raw)[7]
      else
        local place = place_of(holders[i])
        gate = place and place.gate
      end
      gate = gate and rule.kinds[gate]
    end
    if gate then due[#due + 1] = holders[i] end
  end
end

-- Who should ask now, of those that wait for these scope keys; beside those who are called already, without one of them.
local function wake(touched, most, woken, except)
  woken = woken or {}
  if H[9] == 0 or #touched == 0 then return woken end
  local told, seen, done, due = {}, nil, {}, {}
  if #touched > 1 then
    table.sort(touched, function(a, b)
      if a.s ~= b.s then return a.s < b.s end
      return a.key < b.key
    end)
    seen = {}
  end
  if except then
    seen = {[except] = true}
    for _, holder in ipairs(woken) do seen[holder] = true end
  end
  for _, sc in ipairs(touched) do
    if not done[sc.id] and sc.count > 0 then
      done[sc.id] = true
      local fit, from = free(sc) or (first_hopes(sc) and 1 or 0), #woken + 1
      call_up(woken, told, seen, first(sc, min(fit, most)), most)
      pool.wait_here(due, sc.rule, woken, from)
    end
  end
  H[6] = pool.expect(due, H[6])
  tell(told)
  return woken
end

-- The lease of a permit, and whether it is in quarantine.
local function held_by(holder, fence)
  local lease = lease_of(live_key(holder), holder)
  if lease and lease.fence == fence and lease.ends > t then return lease, false end
  if H[8] > 0 then
    lease = lease_of(shut_key(fence), holder)
    if lease and lease.ends > t then return lease, true end
  end
  return nil
end
