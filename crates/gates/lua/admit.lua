-- Asks all gates of a call at once. ARGV from 4: holder, ask, cost, level, lease, deadline, since (empty: none), place wanted, process,
-- whether cost and lease are within bounds, the five parts of the target.
-- Reply: {kind, new partition, …}
--   0 admitted: fence, cost, admitted_at, use_by, expires_at, remaining, woken, parts of the target if it is an older permit
--   1 wait: gate, retry_at, position (0: none), arrived, reason …      2 refused: gate, reason, cost, capacity
local holder, ask, cost, level = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local length, deadline, since = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local wants, process, valid = ARGV[11] == '1', tonumber(ARGV[12]), ARGV[13] == '1'
local parts = {ARGV[14], ARGV[15], ARGV[16], ARGV[17], ARGV[18]}

local keys = missing_keys(parts)
local others = #keys
keys[others + 1], keys[others + 2], keys[others + 3] = live_key(holder), P .. ':p:' .. holder, P
local raws = redis.call('MGET', unpack(keys))
open(raws[others + 3])
read_lease(keys[others + 1], holder, raws[others + 1])
read_place(holder, raws[others + 2])

local function finish(reply)
  save_places()
  reply[2] = save(true)
  return reply
end

local function permit(lease, remaining, woken, older)
  return {
    0, 0, lease.fence, lease.cost, lease.admitted_at - offset, lease.use_by - offset, lease.ends - offset, remaining, woken, older,
  }
end

local function refuse(gate, reason, needs, capacity)
  local place = place_of(holder)
  if place then remove_place(place, false, {}) end
  return finish({2, 0, gate, reason, needs, capacity})
end

-- Whether some gate will never let this call pass.
local function never(found)
  for i, gate in ipairs(C.gates) do
    local sc = found[gate.s]
    if sc and not gate.off then
      local r, needs, capacity = settings(gate, sc.key), cost, math.huge
      if gate.k == 'smooth' then
        needs, capacity = units(r, cost), r.burst
      elseif gate.k == 'window' then
        needs, capacity = units(r, cost), r.max
      elseif gate.k == 'level' then
        local g = sc.gates[gate.id]
        if r.known or g[9] == 1 then capacity = floor(g[7] / NANO) end
      elseif gate.k == 'quota' and r.window then
        capacity = r.window.max
      end
      if needs > capacity then return i - 1, needs, capacity end
    end
  end
  return nil
end

-- What one gate says: nil, or when to come back, and why.
local function check(gate, sc, ahead, as)
  local k, g, r = gate.k, sc.gates[gate.id], settings(gate, sc.key)
  if sc.cool > t and (k == 'smooth' or k == 'window' or k == 'level') then return sc.cool, {2} end
  if k == 'smooth' then
    return smooth_check(g, r, cost, ahead)
  elseif k == 'window' then
    local own = units(r, cost)
    local most, likely = units_ahead(r, ahead)
    local at = window_check(g, r, own, most, likely)
    if not at then return nil end
    return at, {4, g[2], own, r.max, r.every, r.unit}
  elseif k == 'level' then
    return level_check(g, cost, ahead)
  elseif k == 'pool' then
    return pool_check(g, r, as, ahead)
  elseif k == 'breaker' then
    return breaker_check(g, r, process, sc.live, ahead.count)
  end
  return quota_check(g, r, sc, cost, ahead)
end

local function commit(found, place, as)
  local touched, next = {}, {}
  if place then remove_place(place, true, touched) end
  H[3] = max(H[3] + 1, t)
  local fence, held, probes, counted, mark, remaining = H[3], {}, {}, {}, {0, 0, 0}, U32
  for s, rule in ipairs(C.scopes) do
    if found[s] then
      found[s].live = found[s].live + 1
      counted[#counted + 1] = rule.id
    end
  end
  for _, gate in ipairs(C.gates) do
    local sc = found[gate.s]
    if sc and not gate.off then
      local k, g, r, left = gate.k, sc.gates[gate.id], settings(gate, sc.key), nil
      if k == 'smooth' then
        local n = units(r, cost)
        g[1] = g[1] + n * r.every
        left = smooth_remaining(g, r, max(n, 1))
      elseif k == 'window' then
        local n = units(r, cost)
        window_spend(g, r, n)
        left = window_remaining(g, r, max(n, 1))
      elseif k == 'level' then
        mark = level_spend(g, cost)
        left = level_remaining(g, cost)
      elseif k == 'pool' then
        pool_take(g, as, 1)
        left = pool_free(g, r)
      elseif k == 'breaker' then
        if breaker_pass(g, r, fence) then probes[#probes + 1] = gate.id end
        left = breaker_remaining(g, r)
      else
        if g[3] and r.window then window_spend(g[3], r.window, cost) end
        left = quota_remaining(g, r, sc.live, cost)
      end
      held[#held + 1] = gate.id
      remaining = min(remaining, left)
    end
  end
  local key = live_key(holder)
  local lease = {
    fence = fence, cost = cost, admitted_at = t, use_by = t + C.use_by, ends = t + length, shut = 0, holder = holder, key = key,
    raw = {fence, ask, as, process, cost, length, t, t + C.use_by, t + length, mark, 0, parts, held, probes, counted},
  }
  H[7] = H[7] + 1
  write_lease(lease)
  end_at(lease)
  -- Where time alone decides, everybody has been told the time; elsewhere the next one may fit already.
  for _, sc in ipairs(touched) do
    if sc.rule.pool or sc.rule.other then next[#next + 1] = sc end
  end
  return finish(permit(lease, remaining, wake(next, 1), {}))
end

-- Nothing was reserved; the call may keep a place in line.
local function keep_place(found, place, as, arrived, ahead, refused, gate, because, retry_at)
  -- In whose line it stands: the narrowest that refuses it, the latest of those.
  local binding, latest = 1, 0
  for s, rule in ipairs(C.scopes) do
    local at = refused[s]
    if at and at > latest then
      local narrowest = true
      for _, narrow in ipairs(rule.narrower) do
        if refused[narrow] then narrowest = false end
      end
      if narrowest then binding, latest = s, at end
    end
  end
  local wanted = wants and not (deadline and retry_at >= deadline + offset)
  local reply = {1, 0, gate - 1, retry_at - offset, 0, arrived - offset}
  for i, n in ipairs(because) do reply[6 + i] = n end
  if not wanted then
    if place then remove_place(place, false, {}) end
    return finish(reply)
  end
  if not place then
    local sc = found[binding]
    if sc.count >= C.max then
      for i = #reply, 7, -1 do reply[i] = nil end
      reply[7], reply[8] = 1, sc.count
      return finish(reply)
    end
    local blamed = C.gates[gate]
    if blamed.k == 'quota' then
      local g = found[blamed.s].gates[blamed.id]
      g[1] = g[1] + 1
      if because[1] == 13 and because[4] == 1 then g[2] = g[2] + 1 end
    end
    H[4], H[9] = H[4] + 1, H[9] + 1
    place = {
      seq = H[4], level = as, cost = cost, arrived = arrived, retry_at = t, ends = t, gate = '', channel = '', parts = parts,
      stands = {}, holder = holder,
    }
    places[holder] = place
    H.place_added = 1
  end
  local stands = {[binding] = true}
  for _, narrow in ipairs(C.scopes[binding].narrower) do stands[narrow] = true end
  for s = 1, #C.scopes do
    local sc, spot = stands[s] and found[s], place.stands[s]
    if not sc then
      unstand(place, s, false)
    elseif not spot or spot[1] ~= sc.key then
      unstand(place, s, false)
      stand(sc, place)
    end
  end
  place.retry_at, place.gate, place.channel, place.ends = retry_at, C.gates[gate].name, ARGV[3], retry_at + C.grace
  place.dirty = true
  redis.call('ZADD', P .. ':q', text(place.ends), holder)
  if H[6] == 0 or place.ends < H[6] then H[6] = place.ends end
  reply[5] = ahead[binding].count + 1
  return finish(reply)
end

local touched = {}
local purging = purge(touched)
local lease = leases[live_key(holder)]
if lease then
  if lease.ends <= t then
    lapse(lease, touched)
  elseif ask == lease.ask then
    return finish(permit(lease, 0, {}, lease.parts))
  elseif ask < lease.ask then
    return finish({2, 0, -1, 1, 0, 0})
  else
    end_call(lease, 0)
    give_back(lease, touched)
  end
end
if purging then return finish({1, 0, -1, t + 1000 - offset, 0, t - offset, 0}) end
if not valid then return refuse(-1, 3, 0, 0) end
if deadline and deadline + offset <= t then return refuse(-1, 2, 0, 0) end
raws[others + 3] = nil
local found = resolve(parts, raws)
for _, gate in ipairs(C.gates) do
  local sc = found[gate.s]
  if sc then advance(gate.k, sc.gates[gate.id], settings(gate, sc.key)) end
end
local gate, needs, capacity = never(found)
if gate then return refuse(gate, 0, needs, capacity) end

local place, as, none = place_of(holder), level, {count = 0, own = 0, cost = 0, likely = 0}
local arrived, ahead = t, {}
if since and since + offset <= t and t - since - offset <= C.max_wait then arrived = since + offset end
if place then arrived, as = place.arrived, place.level end
for s = 1, #C.scopes do
  local sc = found[s]
  ahead[s] = none
  if sc and sc.count > 0 then
    local spot = place and place.stands[s]
    if spot and spot[1] == sc.key then
      ahead[s] = ahead_of(sc, place, spot)
    else
      ahead[s] = ahead_of_new(sc, as, place and place.seq or nil, arrived, parts[2])
    end
  end
end
local refused, blamed, because, retry_at = {}, nil, nil, nil
for i, rule in ipairs(C.gates) do
  local sc = found[rule.s]
  if sc and not rule.off then
    local at, why = check(rule, sc, ahead[rule.s], as)
    if at then
      if not blamed or at > retry_at then blamed, because, retry_at = i, why, at end
      refused[rule.s] = max(refused[rule.s] or 0, at)
    end
  end
end
if not blamed then return commit(found, place, as) end
return keep_place(found, place, as, arrived, ahead, refused, blamed, because, retry_at)
