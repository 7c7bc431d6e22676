-- Places and lines. A place: seq, level, cost, arrived, retry_at, ends, gate, holder, channel, parts, stands by the number of the
-- scope: {key, 1 main or 0 side, order, since}.
local MAX_ROUNDS = 64

-- A number and a name, in the order of the numbers: the bytes of doubles, the highest first, are in their order.
local function member(seq, name) return struct.pack('>d', seq) .. name end
-- How a place is called in a line: its number, channel and holder, so that whoever wakes it need not read it.
local function waiter(place) return member(place.seq, place.channel .. ' ' .. place.holder) end
-- Of such a name: the holder and the channel.
local function waiter_in(name)
  local space = string.find(name, ' ', 9, true)
  return sub(name, space + 1), sub(name, 9, space - 1)
end
local LEVELS = {[0] = ':0', ':1', ':2', ':3', ':4', ':5', ':6', ':7'}
local function main_key(sc, level) return P .. sc.rule.line .. sc.key .. LEVELS[level] end
local function side_key(sc, level, tenant)
  return P .. ':d:' .. sc.rule.id .. ':' .. level .. ':' .. sc.key .. '|' .. tenant
end
local function groups_key(sc) return P .. ':g:' .. sc.rule.id .. ':' .. sc.key end

local function read_place(holder, raw)
  if not raw then
    places[holder] = false
    return false
  end
  local r = cmsgpack.unpack(raw)
  local place = {
    seq = r[1], level = r[2], cost = r[3], arrived = r[4], retry_at = r[5], ends = r[6], gate = r[7], channel = r[8],
    parts = r[9], stands = {}, holder = holder,
  }
  for i = 1, #r[10], 5 do
    for s, rule in ipairs(C.scopes) do
      if rule.id == r[10][i] then
        place.stands[s] = {r[10][i + 1], r[10][i + 2], r[10][i + 3], r[10][i + 4]}
      end
    end
  end
  places[holder] = place
  return place
end

local function place_of(holder)
  local place = places[holder]
  if place == nil then place = read_place(holder, command('GET', P .. ':p:' .. holder)) end
  return place
end

local function save_places()
  for holder, p in pairs(places) do
    if p and p.dirty then
      local stands = {}
      for s, rule in ipairs(C.scopes) do
        local stand = p.stands[s]
        if stand then
          local n = #stands
          stands[n + 1], stands[n + 2], stands[n + 3], stands[n + 4], stands[n + 5] =
            rule.id, stand[1], stand[2], stand[3], stand[4]
        end
      end
      command('SETEX', P .. ':p:' .. holder, C.ttl_text, cmsgpack.pack({
        p.seq, p.level, p.cost, p.arrived, p.retry_at, p.ends, p.gate, p.channel, p.parts, stands,
      }))
    end
  end
end

-- A tenant's places of a level: 1 cost in the main line, 2 how many there, 3 owed, 4 how many in the side line.
local function group_of(sc, level, tenant)
  local raw = command('HGET', groups_key(sc), level .. ':' .. tenant)
  if raw then return cmsgpack.unpack(raw) end
  return nil
end

local function save_group(sc, level, tenant, group)
  local key, field = groups_key(sc), level .. ':' .. tenant
  if group then
    command('HSET', key, field, cmsgpack.pack(group))
    command('EXPIRE', key, TTL)
  else
    command('HDEL', key, field)
  end
end

local function enter(sc, place, base)
  local level = place.level
  local order = base + level * C.step
  local key = main_key(sc, level)
  command('ZADD', key, stamp(order), waiter(place))
  for l = #sc.levels + 1, level + 1 do sc.levels[l] = 0 end
  -- A sorted set that was emptied has lost its expiry; one that is in use needs a later one now and then.
  if sc.levels[level + 1] == 0 or place.seq % 8 == 0 then command('EXPIRE', key, C.ttl_text) end
  sc.levels[level + 1] = sc.levels[level + 1] + 1
  place.stands[sc.s] = {sc.key, 1, order, base}
  place.dirty = true
end

local function join(sc, place)
  sc.dirty = true
  sc.count, sc.cost, sc.largest = sc.count + 1, sc.cost + place.cost, max(sc.largest, place.cost)
end

local function stand(sc, place)
  join(sc, place)
  if not sc.rule.fair then return enter(sc, place, place.arrived) end
  local tenant = place.parts[2]
  local group = group_of(sc, place.level, tenant) or {0, 0, 0, 0}
  if (group[2] > 0 and group[1] + place.cost > C.quantum) or group[4] > 0 then
    local key = side_key(sc, place.level, tenant)
    command('ZADD', key, place.arrived, waiter(place))
    command('EXPIRE', key, TTL)
    group[4] = group[4] + 1
    place.stands[sc.s] = {sc.key, 0, 0, 0}
    place.dirty = true
  else
    group[1], group[2] = group[1] + place.cost, group[2] + 1
    enter(sc, place, max(t, group[3]))
  end
  save_group(sc, place.level, tenant, group)
end

-- Into the main line, whatever the tenant has there.
local function stand_in_main(sc, place)
  join(sc, place)
  if sc.rule.fair then
    local tenant = place.parts[2]
    local group = group_of(sc, place.level, tenant) or {0, 0, 0, 0}
    group[1], group[2] = group[1] + place.cost, group[2] + 1
    save_group(sc, place.level, tenant, group)
  end
  enter(sc, place, t)
end

local function leave_group(sc, place, spot, admitted)
  local level, tenant = place.level, place.parts[2]
  local group = group_of(sc, level, tenant)
  if not group then return end
  local side = side_key(sc, level, tenant)
  if spot[2] == 0 then
    group[4] = group[4] - command('ZREM', side, waiter(place))
  else
    group[1], group[2] = group[1] - place.cost, group[2] - 1
    if admitted then
      local rounds = clamp(cdiv(place.cost, C.quantum), 1, MAX_ROUNDS)
      group[3] = t + (rounds - 1) * max(t - spot[4], 0)
    end
  end
  while group[4] > 0 do
    local first = command('ZRANGE', side, 0, 0)[1]
    local next = first and place_of((waiter_in(first)))
    if not next then
      -- Nobody: the line and its places are written together, so this is a loss of keys.
      if not first then group[4] = 0 else group[4] = group[4] - command('ZREM', side, first) end
    else
      if group[2] > 0 and group[1] + next.cost > C.quantum then break end
      command('ZREM', side, first)
      group[1], group[2], group[4] = group[1] + next.cost, group[2] + 1, group[4] - 1
      enter(sc, next, max(t, group[3]))
    end
  end
  if group[2] == 0 and group[4] == 0 and group[3] <= t then group = nil end
  save_group(sc, level, tenant, group)
end

-- Takes a place out of the line of scope `s`; the scope key, if it stood there.
local function unstand(place, s, admitted)
  local spot = place.stands[s]
  if not spot then return nil end
  place.stands[s] = nil
  place.dirty = true
  local sc = scope(s, spot[1])
  sc.dirty = true
  sc.count, sc.cost = sc.count - 1, sc.cost - place.cost
  if sc.count == 0 then sc.largest = 0 end
  if spot[2] == 1 then
    local went = command('ZREM', main_key(sc, place.level), waiter(place))
    sc.levels[place.level + 1] = sc.levels[place.level + 1] - went
  end
  if sc.rule.fair then leave_group(sc, place, spot, admitted) end
  return sc
end

local function remove_place(place, admitted, touched)
  for s = 1, #C.scopes do
    local sc = unstand(place, s, admitted)
    if sc then touched[#touched + 1] = sc end
  end
  command('DEL', P .. ':p:' .. place.holder)
  command('ZREM', P .. ':q', place.holder)
  H[9] = H[9] - 1
  if H[9] == 0 then H[6] = 0 end
  places[place.holder] = false
end

-- How many of the main line come before (order, level, seq); seq nil: all of the same order do. `name`: it stands there itself.
local function before(sc, order, level, seq, name)
  local ahead = {count = 0, own = 0, cost = 0, likely = 0}
  for l, n in ipairs(sc.levels) do
    if n > 0 then
      local key, here = main_key(sc, l - 1), nil
      if l == level + 1 then
        if name then
          here = command('ZRANK', key, name) or 0
        elseif seq then
          here = command('ZCOUNT', key, '-inf', '(' .. text(order))
          for _, other in ipairs(command('ZRANGEBYSCORE', key, text(order), text(order))) do
            if struct.unpack('>d', other) < seq then here = here + 1 end
          end
        else
          here = command('ZCOUNT', key, '-inf', text(order))
        end
        ahead.own = here
      else
        local edge = l < level + 1 and '' or '('
        here = command('ZCOUNT', key, '-inf', edge .. text(order))
      end
      ahead.count = ahead.count + here
    end
  end
  return ahead
end

local function weigh(sc, ahead, all)
  ahead.cost = min(all, ahead.count * sc.largest)
  ahead.likely = min(ahead.cost, ahead.count * cdiv(sc.cost, max(sc.count, 1)))
  return ahead
end

-- How many of a side line come before (arrived, seq).
local function aside_before(sc, level, tenant, arrived, seq)
  local key = side_key(sc, level, tenant)
  local n = command('ZCOUNT', key, '-inf', '(' .. text(arrived))
  for _, other in ipairs(command('ZRANGEBYSCORE', key, text(arrived), text(arrived))) do
    if not seq or struct.unpack('>d', other) < seq then n = n + 1 end
  end
  return n
end

local function ahead_of(sc, place, spot)
  local ahead
  if spot[2] == 1 then
    ahead = before(sc, spot[3], place.level, place.seq, waiter(place))
  else
    ahead = before(sc, t + place.level * C.step, place.level)
    local own = aside_before(sc, place.level, place.parts[2], place.arrived, place.seq)
    ahead.count, ahead.own = ahead.count + own, ahead.own + own
  end
  return weigh(sc, ahead, sc.cost - place.cost)
end

-- For a call that comes now; `seq` if it has a place elsewhere.
local function ahead_of_new(sc, level, seq, arrived, tenant)
  local base, own = arrived, 0
  if sc.rule.fair then
    base = t
    local group = group_of(sc, level, tenant)
    if group then
      base = max(base, group[3])
      if group[4] > 0 then own = aside_before(sc, level, tenant, arrived, seq) end
    end
  end
  local ahead = before(sc, base + level * C.step, level, seq)
  ahead.count, ahead.own = ahead.count + own, ahead.own + own
  return weigh(sc, ahead, sc.cost)
end

-- The first n of the main line, by their names there.
local LAST = {'0', '1', '2', '3'}
local function first(sc, n)
  if n <= 0 then return NOTHING end
  local levels, only = sc.levels, nil
  for l = 1, #levels do
    if levels[l] > 0 then
      if only then
        only = nil
        break
      end
      only = l
    end
  end
  local last = LAST[n] or text(n - 1)
  if only then return command('ZRANGE', main_key(sc, only - 1), '0', last) end
  local found = {}
  for l, count in ipairs(levels) do
    if count > 0 then
      local heads = command('ZRANGE', main_key(sc, l - 1), '0', last, 'WITHSCORES')
      for i = 1, #heads, 2 do
        found[#found + 1] = {tonumber(heads[i + 1]), l, #found, heads[i]}
      end
    end
  end
  table.sort(found, function(a, b)
    if a[1] ~= b[1] then return a[1] < b[1] end
    if a[2] ~= b[2] then return a[2] < b[2] end
    return a[3] < b[3]
  end)
  local names = {}
  for i = 1, min(n, #found) do names[i] = found[i][4] end
  return names
end

-- A place is asked for from another process: its name in the lines changes.
local function move_channel(place, channel)
  local before = waiter(place)
  place.channel, place.dirty = channel, true
  for s, spot in pairs(place.stands) do
    local sc = scope(s, spot[1])
    local key = spot[2] == 1 and main_key(sc, place.level) or side_key(sc, place.level, place.parts[2])
    command('ZREM', key, before)
    command('ZADD', key, spot[2] == 1 and spot[3] or place.arrived, waiter(place))
    command('EXPIRE', key, TTL)
  end
end
