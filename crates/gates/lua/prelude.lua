-- Shared by all scripts of the gates, before everything else: configuration, clock, and the state that is kept as strings.
--
-- KEYS[1]  the partition; every other key begins with it and so has its hash tag:
--   P              the clock, the fence, lower bounds of the next ends, counts, and the scopes that have one key per partition
--   P:s:<scope>:<key>          another scope key: live leases, sums of its line, its gates
--   P:w:<scope>:<key>:<level>  ZSET  order -> number of the place, holder: the main line of a level
--   P:d:<scope>:<key>:<level>:<tenant>  ZSET  arrival -> the same: the side line of a tenant
--   P:g:<scope>:<key>          HASH  level:tenant -> what the tenant has in the main line, and owes
--   P:l:<holder>, P:h:<fence>  a lease, and one in quarantine;  P:e  ZSET  end -> lease
--   P:k                        ZSET  when it was made -> scope key, of those with a string of their own
--   P:p:<holder>               a place;  P:q  ZSET  end -> holder
-- C        the set of gates, a table before this text
-- ARGV[1]  when all state was lost (-1: never), a comma and a digit per gate (1: switched off) if any is   ARGV[2]  now in microseconds; empty: the server's clock   ARGV[3]  the caller's channel
--
-- Every number is a whole one below 2^53. `..` and tostring would cut times to 14 digits: `text` does not.
local P = KEYS[1]
local floor, max, min = math.floor, math.max, math.min
local NANO, SOON, FORGET, SECOND, PRODUCT = 1000000, 1000, 3600000000, 1000000, 4503599627370496
local U32 = 4294967295
local BATCH, WOKEN = 64, 16

local function text(n) return string.format('%.0f', n) end
local function cdiv(a, b)
  local q = floor(a / b)
  if q * b < a then return q + 1 end
  return q
end
local function clamp(n, low, high) return max(low, min(n, high)) end

local TTL = C.ttl
local LOST = tonumber(ARGV[1])
if not LOST then
  local comma = string.find(ARGV[1], ',', 1, true)
  LOST = tonumber(string.sub(ARGV[1], 1, comma - 1))
  for i, gate in ipairs(C.gates) do gate.off = string.sub(ARGV[1], comma + i, comma + i) == '1' end
end
local H          -- the partition: see `open`
local t, offset  -- its time
local scopes = {} -- scope keys that were read, by their Redis key
local opened = {} -- the same, in the order of reading

local function put(key, value) redis.call('SET', key, value, 'EX', TTL) end

-- 1 last, 2 offset, 3 fence, 4 place numbers, 5 and 6 no lease and no place ends before (0: there is none), 7 leases, 8 in quarantine,
-- 9 places, 10 when all was lost (-1: never), 11 when the expiry of sorted sets was set, 12 scopes with one key
local function open(raw)
  local now
  if ARGV[2] == '' then
    local time = redis.call('TIME')
    now = time[1] * SECOND + time[2]
  else
    now = tonumber(ARGV[2])
  end
  if raw then
    H = cmsgpack.unpack(raw)
  else
    H = {0, 0, 0, 0, 0, 0, 0, 0, 0, LOST, 0, {}}
  end
  t, offset = now + H[2], H[2]
  if t < H[1] then
    if H[1] - t > SECOND then
      offset = offset + H[1] - t
      H[2] = offset
    end
    t = H[1]
  end
  H[1] = t
end

local fresh_gate -- by kind, below

local function scope_id(s, key) return P .. ':s:' .. C.scopes[s].id .. ':' .. key end

-- The state of a scope key; `raw` if it was read already. Made if there is none: what it then starts with depends on its gates.
local function scope(s, key, raw)
  local id = scope_id(s, key)
  local found = scopes[id]
  if found then return found end
  local rule = C.scopes[s]
  if rule.root then
    raw = H[12][rule.id]
  else
    if raw == nil then raw = redis.call('GET', id) end
    if raw then raw = cmsgpack.unpack(raw) end
  end
  found = {s = s, key = key, id = id, rule = rule, gates = {}}
  if raw then
    found.live, found.cool, found.count, found.cost, found.largest, found.levels =
      raw[1], raw[2], raw[3], raw[4], raw[5], raw[6]
    for i = 7, #raw, 2 do found.gates[raw[i]] = raw[i + 1] end
  else
    found.live, found.cool, found.count, found.cost, found.largest, found.levels = 0, 0, 0, 0, 0, {}
    found.made = true
  end
  scopes[id] = found
  opened[#opened + 1] = found
  return found
end

-- Settings of a gate for a key.
local function settings(gate, key) return gate.o and gate.o[key] or gate.r end

-- The state of a gate of a scope key.
local function gate_state(sc, gate)
  local state = sc.gates[gate.id]
  if not state then
    state = fresh_gate(gate.k, settings(gate, sc.key), H[10])
    sc.gates[gate.id] = state
  end
  return state
end

-- Writes back what was changed, once, at the end. `noted`: the caller passes on that the partition is to be listed, which is the
-- case if it is new or has not been for long.
local function save(noted)
  for i = 1, #opened do
    local sc = opened[i]
    if sc.dirty then
      local raw = {sc.live, sc.cool, sc.count, sc.cost, sc.largest, sc.levels}
      for id, state in pairs(sc.gates) do
        raw[#raw + 1] = id
        raw[#raw + 1] = state
      end
      if sc.rule.root then
        H[12][sc.rule.id] = raw
      else
        put(sc.id, cmsgpack.pack(raw))
        if sc.made then
          redis.call('ZADD', P .. ':k', text(t), sc.rule.id .. ':' .. sc.key)
          redis.call('EXPIRE', P .. ':k', TTL)
        end
      end
    end
  end
  -- A sorted set that was emptied has lost its expiry, and one that is in use needs a later one.
  local late = t - H[11] > TTL * SECOND / 4
  if late then
    if noted then H[11] = t end
    redis.call('EXPIRE', P .. ':k', TTL)
  end
  if late or (H.lease_added and H.lease_added >= H[7]) then redis.call('EXPIRE', P .. ':e', TTL) end
  if late or (H.place_added and H.place_added >= H[9]) then redis.call('EXPIRE', P .. ':q', TTL) end
  H.lease_added, H.place_added = nil, nil
  put(P, cmsgpack.pack(H))
  return late and 1 or 0
end

-- The key of a target (five parts) in a scope; nil if the scope does not apply to it.
local function key_of(rule, parts)
  if rule.only and not rule.only[parts[4]] then return nil end
  local key = ''
  for _, part in ipairs(rule.parts) do
    if key ~= '' then key = key .. '/' end
    key = key .. parts[part]
  end
  return key
end

-- The scope keys of a target, by the number of the scope; those that are read together come as `raws` in this order.
local function missing_keys(parts)
  local ids = {}
  for s, rule in ipairs(C.scopes) do
    if not rule.root then
      local key = key_of(rule, parts)
      if key then ids[#ids + 1] = scope_id(s, key) end
    end
  end
  return ids
end

local function resolve(parts, raws)
  local found, at = {}, 0
  for s, rule in ipairs(C.scopes) do
    local key = key_of(rule, parts)
    if key then
      local raw
      if raws and not rule.root then
        at = at + 1
        raw = raws[at]
      end
      local sc = scope(s, key, raw)
      sc.dirty = true
      found[s] = sc
    else
      found[s] = false
    end
  end
  for _, gate in ipairs(C.gates) do
    if found[gate.s] then gate_state(found[gate.s], gate) end
  end
  return found
end
