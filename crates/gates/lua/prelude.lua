-- Shared by all operations of the gates, before everything else: configuration, clock, and the state that is kept as strings.
--
-- This is a library of functions: its body runs once, when the server reads it. What an operation works on stands in the locals
-- below, and `begin` sets every one of them anew. (As scripts, making the closures alone took 27 of 75 microseconds per call.)
--
-- keys[1]  the partition; every other key begins with it and so has its hash tag:
--   P              the clock, the fence, lower bounds of the next ends, counts, and the scopes that have one key per partition
--   P:s:<scope>:<key>          another scope key: live leases, sums of its line, its gates
--   P:r:<scope>:<key>:<gate>   the ring of a window: (tick, units) as pairs of doubles
--   P:w:<scope>:<key>:<level>  ZSET  order -> number of the place, holder: the main line of a level
--   P:d:<scope>:<level>:<key>|<tenant>  ZSET  arrival -> the same: the side line of a tenant
--   P:g:<scope>:<key>          HASH  level:tenant -> what the tenant has in the main line, and owes
--   P:l:<holder>, P:h:<fence>  a lease, and one in quarantine;  P:e  ZSET  end -> lease
--   P:k                        ZSET  when it was made -> scope key, of those with a string of their own
--   P:p:<holder>               a place;  P:q  ZSET  end -> holder
-- args[1]  name of the set of gates. If anything is unusual, with semicolons between: the name; when all state was lost (-1: never);
-- a digit per gate, 1: switched off (empty: none is); number:until:when it was said of breakers that are open for all keys by order, or (until
-- 0) whose order was taken back before its time was over, with commas between; now in microseconds (empty: the server's clock)
-- args[2]  the caller's channel
--
-- Every number is a whole one below 2^53. `..` and tostring would cut times to 14 digits: `text` does not, nor do arguments of
-- commands.
local NANO, SOON, FORGET, SECOND, PRODUCT = 1000000, 1000, 3600000000, 1000000, 4503599627370496
local U32 = 4294967295
local BATCH, WOKEN = 64, 4
local MAX_SETS, MAX_TARGETS = 2000, 10000

local sets, number_of_sets = {}, 0 -- by name: what `define` was given
local number_of_targets = 0        -- that the sets remember, see `known_target`
local KINDS = {}                   -- what each kind of gate does: advance, never, check, spend

-- Of the standard library and `redis`, which a library does not have while it is read.
local command, floor, max, min, format, sub
-- OFF: which gates are switched off; false: none. args.words: what was said of breakers for all keys, of each its gate, until when it is
-- open, and when that was said; false: nothing.
local P, args, C, TTL, LOST, OFF
local H, t, offset                     -- the partition (see `open`), and its time
local scopes, opened                   -- scope keys that were read, by their Redis key, and in the order of reading
local leases, places                   -- those that were read, by key and by holder; false: there is none
local lease_added, place_added
-- Parts of the call's target, the same as one text, what is known of it (see `known_target`); by scope its key (false: it does not
-- apply), what was read of it, and what that is; and the partition as it was read.
local target, target_text, target_known, target_names, target_raws, target_scopes, target_raw
local clock -- now, if it was given or asked for

local function text(n) return format('%.0f', n) end

-- The same for times, of which many begin alike: to print a number costs as much as a command.
local stamp
do
local DIGITS, SECONDS, number_of_seconds = {}, {}, 0
function stamp(n)
  local rest = n % SECOND
  local whole = (n - rest) / SECOND
  local first = SECONDS[whole]
  if not first then
    if number_of_seconds >= 1000 then SECONDS, number_of_seconds = {}, 0 end
    if not DIGITS[0] then
      for i = 0, 999 do DIGITS[i] = format('%03d', i) end
    end
    first, number_of_seconds = text(whole), number_of_seconds + 1
    if whole == 0 then return text(n) end
    SECONDS[whole] = first
  end
  local low = rest % 1000
  return first .. DIGITS[(rest - low) / 1000] .. DIGITS[low]
end
end

local function cdiv(a, b)
  local q = floor(a / b)
  if q * b < a then return q + 1 end
  return q
end
-- NaN stands for nothing.
local function known(n)
  if n == n then return n end
  return nil
end
local function clamp(n, low, high) return max(low, min(n, high)) end

-- Numbers as doubles, many at once; what is written in one piece has a format of its own for each length.
local PIECE, NOTHING = 200, {}
local formats = {}

local function format_of(n)
  local found = formats[n]
  if not found then
    found = '<' .. string.rep('d', n)
    formats[n] = found
  end
  return found
end

local function numbers(raw)
  local n = #raw / 8
  if n <= PIECE then
    local all = {struct.unpack(format_of(n), raw)}
    all[n + 1] = nil -- where it ended
    return all
  end
  local all = {}
  for at = 0, n - 1, PIECE do
    local piece = min(PIECE, n - at)
    local some = {struct.unpack(format_of(piece), raw, at * 8 + 1)}
    for i = 1, piece do all[at + i] = some[i] end
  end
  return all
end

local function packed(all)
  local n = #all
  if n <= PIECE then return struct.pack(format_of(n), unpack(all, 1, n)) end
  local pieces = {}
  for at = 1, n, PIECE do
    local last = min(at + PIECE - 1, n)
    pieces[#pieces + 1] = struct.pack(format_of(last - at + 1), unpack(all, at, last))
  end
  return table.concat(pieces)
end

-- A scope key's record (see `scope`) as numbers: 1 to 5 as they are, 6 when its expiry was set, 7 how many levels it has, these,
-- then for each gate its id, how many numbers it has, and these.
local RECORD = 7

local function record_of(all, base, last)
  local at = base + RECORD + all[base + RECORD]
  local levels = {unpack(all, base + RECORD + 1, at)}
  local record = {all[base + 1], all[base + 2], all[base + 3], all[base + 4], all[base + 5], levels, all[base + 6]}
  while at < last do
    local n = all[at + 2]
    record[#record + 1] = all[at + 1]
    record[#record + 1] = {unpack(all, at + 3, at + 2 + n)}
    at = at + 2 + n
  end
  return record
end

local function flatten(all, record)
  -- Nobody waits: there are no levels.
  local n, levels = #all, record[3] > 0 and record[6] or NOTHING
  all[n + 1], all[n + 2], all[n + 3], all[n + 4], all[n + 5], all[n + 6], all[n + 7] =
    record[1], record[2], record[3], record[4], record[5], record[7], #levels
  for l = 1, #levels do all[n + RECORD + l] = levels[l] end
  n = n + RECORD + #levels
  for i = 8, #record, 2 do
    local state = record[i + 1]
    all[n + 1], all[n + 2] = record[i], #state
    for k = 1, #state do all[n + 2 + k] = state[k] end
    n = n + 2 + #state
  end
end

-- The partition as numbers: eleven, how many orders there are (see `open`), each as id and time; then for each scope that has one
-- key the scope's number, how many numbers follow, and the record.
local HEADER = 12

local function partition_of(raw)
  local all = numbers(raw)
  local new = {unpack(all, 1, HEADER - 1)}
  new[12] = {}
  local at = HEADER
  if all[HEADER] > 0 then
    new[13] = {}
    for _ = 1, all[HEADER] do
      new[13][all[at + 1]] = all[at + 2]
      at = at + 2
    end
  end
  while at < #all do
    local last = at + 2 + all[at + 2]
    new[12][all[at + 1]] = record_of(all, at + 2, last)
    at = last
  end
  return new
end

local function partition_text(from)
  local all, orders = {unpack(from, 1, HEADER - 1)}, 0
  all[HEADER] = 0
  for id, till in pairs(from[13] or {}) do
    orders = orders + 1
    all[#all + 1] = id
    all[#all + 1] = till
  end
  all[HEADER] = orders
  for number, record in pairs(from[12]) do
    local at = #all
    all[at + 1], all[at + 2] = number, 0
    flatten(all, record)
    all[at + 2] = #all - at - 2
  end
  return packed(all)
end

-- What stands beside the name of a set: the same for many calls.
local begin
do
local MAX_CIRCUMSTANCES, seen, number = 1000, {}, 0
local function circumstances(given)
  local found = seen[given]
  if found then return found end
  local name, lost, off, said, now = string.match(given, '^(%x+);(%-?%d+);(%d*);([%d:,]*);(%d*)$')
  if not name then return nil end
  local words = {}
  for i, till, at in string.gmatch(said, '(%d+):(%d+):(%d+)') do words[#words + 1] = {tonumber(i), tonumber(till), tonumber(at)} end
  found = {name = name, lost = tonumber(lost), off = off ~= '' and off, words = words[1] and words or false, now = tonumber(now)}
  if not found.now then
    if number >= MAX_CIRCUMSTANCES then seen, number = {}, 0 end
    seen[given], number = found, number + 1
  end
  return found
end

function begin(keys, arguments)
  if not command then
    command, floor, max, min, format, sub = redis.call, math.floor, math.max, math.min, string.format, string.sub
  end
  P, args = keys[1], arguments
  C, OFF, LOST, clock = sets[args[1]], false, -1, nil
  if not C then
    local found = circumstances(args[1])
    C = found and sets[found.name]
    if not C then return false end
    OFF, LOST, clock, args.words = found.off, found.lost, found.now, found.words
  end
  TTL = C.ttl
  return true
end
end

-- What the rules in full work on. The usual call goes without, see `quick.lua`.
local function reset()
  H, t, offset, scopes, opened, leases, places, lease_added, place_added = nil, nil, nil, {}, {}, {}, {}, 0, 0
  target_scopes = nil
end

-- Makes an operation known under its name. `quick`: it calls `reset` itself.
local function operation(name, run, quick)
  redis.register_function(LIBRARY .. name, function(keys, arguments)
    if not begin(keys, arguments) then return redis.error_reply('TGSET the set of gates is not defined') end
    if not quick then
      target, target_text = nil, nil
      reset()
    end
    return run()
  end)
end

local function is_off(gate) return OFF and string.byte(OFF, gate.i) == 49 end

local function put(key, value) command('SET', key, value, 'EX', TTL) end

-- Writes a string that was there already, with a later expiry only where it is `late`.
local function put_again(key, value, late)
  if late then
    command('SET', key, value, 'EX', TTL)
  else
    command('SET', key, value, 'KEEPTTL')
  end
end

-- Whether an expiry is to be set again, and the partition to be listed: its list may be gone with whatever was lost.
local function is_late(since) return t - since > TTL * SECOND / 4 or LOST > since end

local second, second_began -- the last one that TIME named, and as a time
local function given_time()
  if not clock then
    local time = command('TIME')
    if time[1] ~= second then second, second_began = time[1], time[1] * SECOND end
    clock = second_began + time[2]
  end
  return clock
end

-- 1 last, 2 offset, 3 fence, 4 place numbers, 5 and 6 no lease and no place ends before (0: there is none), 7 leases, 8 in quarantine,
-- 9 places, 10 when all was lost (-1: never), 11 when the expiry of sorted sets was set, 12 scopes with one key, 13 what operators have
-- said of breakers for all keys (nil: nothing), see `heed`
local function open(raw)
  local now = given_time()
  if raw then
    H = partition_of(raw)
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

local function scope_id(rule, key) return P .. rule.prefix .. key end

-- The state of a scope key; `raw` if it was read already (false: there is none). Its record: 1 live leases, 2 closed until, then
-- of its line 3 how many, 4 their cost, 5 the largest since it was empty, 6 how many per level; 7 when its expiry was set; 8…
-- number and state of each gate.
local function scope(s, key, raw)
  local rule = C.scopes[s]
  local id = scope_id(rule, key)
  local found = scopes[id]
  if found then return found end
  if rule.root then
    raw = H[12][rule.number]
  else
    if raw == nil then raw = command('GET', id) end
    if raw then
      raw = numbers(raw)
      raw = record_of(raw, 0, #raw)
    end
  end
  found = {s = s, key = key, id = id, rule = rule, dirty = false}
  if raw then
    found.record, found.live, found.cool, found.count, found.cost, found.largest, found.levels =
      raw, raw[1], raw[2], raw[3], raw[4], raw[5], raw[6]
  else
    found.live, found.cool, found.count, found.cost, found.largest, found.levels = 0, 0, 0, 0, 0, {}
    found.record, found.made = {0, 0, 0, 0, 0, found.levels, 0}, true
  end
  scopes[id] = found
  opened[#opened + 1] = found
  return found
end

-- Settings of a gate for a key.
local function settings(gate, key) return gate.o and gate.o[key] or gate.r end

-- The state of a gate of a scope key. It is where the set says unless the set has changed.
local function gate_state(sc, gate)
  local record, at = sc.record, gate.at
  if record[at] == gate.id then return record[at + 1] end
  for i = 8, #record, 2 do
    if record[i] == gate.id then return record[i + 1] end
  end
  local state, n = gate.kind.fresh(settings(gate, sc.key), H[10], sc, gate), #record
  record[n + 1], record[n + 2] = gate.id, state
  return state
end

-- Writes back what was changed, once, at the end. `noted`: the caller passes on that the partition is to be listed, which is the
-- case if it is new or has not been for long.
local function save(noted)
  for i = 1, #opened do
    local sc = opened[i]
    if sc.dirty then
      local record = sc.record
      record[1], record[2], record[3], record[4], record[5] = sc.live, sc.cool, sc.count, sc.cost, sc.largest
      if sc.rule.root then
        H[12][sc.rule.number] = record
      else
        local late = sc.made or is_late(record[7])
        if late then record[7] = t end
        local all = {}
        flatten(all, record)
        put_again(sc.id, packed(all), late)
        if sc.made then
          command('ZADD', P .. ':k', t, sc.rule.id .. ':' .. sc.key)
          command('EXPIRE', P .. ':k', TTL)
        end
      end
    end
  end
  -- A sorted set that was emptied has lost its expiry, and one that is in use needs a later one.
  local late = is_late(H[11])
  if late then
    if noted then H[11] = t end
    command('EXPIRE', P .. ':k', TTL)
  end
  if late or (lease_added > 0 and lease_added >= H[7]) then command('EXPIRE', P .. ':e', TTL) end
  if late or (place_added > 0 and place_added >= H[9]) then command('EXPIRE', P .. ':q', TTL) end
  put_again(P, partition_text(H), late)
  return late and 1 or 0
end

-- The key of a target (five parts) in a scope; nil if the scope does not apply to it (`all`: it does not matter). A part that is empty
-- has its slash.
local function key_of(rule, parts, all)
  local list = rule.parts
  if rule.only and not rule.only[parts[4]] and not all then return nil end
  local key = list[1] and parts[list[1]] or ''
  for i = 2, #list do key = key .. '/' .. parts[list[i]] end
  return key
end

-- What follows from a target in this set: its parts; by scope its key (false: it does not apply) and that key's end behind the
-- partition's (false: it is in the partition); the scopes that have a key of their own; and what a lease says behind its doubles, if
-- all gates hold something for it and none takes it for a probe. Most targets come again soon.
local function known_target(name)
  local known = C.targets[name]
  if known then return known end
  local parts = {string.match(name, '^([^/]*)/([^/]*)/([^/]*)/([^/]*)/([^/]*)$')}
  local names, ends, own, held, counted, n = {}, {}, {}, '', ',', 0
  for s, rule in ipairs(C.scopes) do
    local key = key_of(rule, parts)
    names[s], ends[s] = key or false, false
    if key then
      counted = counted .. rule.id .. ','
      if not rule.root then
        ends[s] = rule.prefix .. key
        own[#own + 1] = s
      end
    end
  end
  for _, gate in ipairs(C.gates) do
    if names[gate.s] then held, n = held .. gate.packed, n + 1 end
  end
  local tail = struct.pack('BBB', 0, n, 0) .. held .. counted .. '|' .. name
  known = {parts = parts, names = names, ends = ends, own = own, tail = tail}
  number_of_targets = number_of_targets + 1
  if number_of_targets > MAX_TARGETS then
    for _, set in pairs(sets) do set.targets = {} end
    number_of_targets = 1
  end
  C.targets[name] = known
  return known
end

-- Reads the partition, the scope keys of the call's target, which is argument `at`, and another key, all at once. What the last one
-- holds, false if there is nothing.
local function fetch(at, other)
  target_text = args[at]
  target_known = known_target(target_text)
  target, target_names = target_known.parts, target_known.names
  local own, raws = target_known.own, nil
  if #own == 0 then
    target_raws = NOTHING
    raws = command('MGET', P, other)
  else
    local ids, ends = {P, other}, target_known.ends
    for i = 1, #own do ids[i + 2] = P .. ends[own[i]] end
    raws = command('MGET', unpack(ids))
    target_raws = {}
    for i = 1, #own do target_raws[own[i]] = raws[i + 2] end
  end
  target_raw = raws[1]
  return raws[2]
end

-- Opens what was fetched.
local function open_fetched()
  reset()
  open(target_raw)
  target_scopes = {}
  for s = 1, #target_names do
    target_scopes[s] = target_names[s] and scope(s, target_names[s], target_raws[s])
  end
end

-- The scope keys of the call's target, by the number of the scope (false: it does not apply), to be written back.
local function resolve()
  for s = 1, #target_scopes do
    if target_scopes[s] then target_scopes[s].dirty = true end
  end
  return target_scopes
end
