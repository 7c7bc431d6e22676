-- Smooth rate, window and reported level. States are lists of numbers; `r` are the settings.

local function units(r, cost) return r.unit == 1 and cost or 1 end
local function units_ahead(r, ahead)
  if r.unit == 1 then return ahead.cost, ahead.likely end
  return ahead.count, ahead.count
end

-- Smooth: 1 level, 2 at.
local smooth = {}
KINDS.smooth = smooth

function smooth.advance(g, r)
  if g[1] > 0 then
    local elapsed = t - g[2]
    if elapsed >= cdiv(g[1], r.rate) then g[1] = 0 else g[1] = g[1] - elapsed * r.rate end
  end
  g[2] = t
end

function smooth.fresh(r, lost)
  local g = {0, t}
  if lost >= 0 then
    g = {r.burst * r.every, lost}
    smooth.advance(g, r)
  end
  return g
end

function smooth.never(_, r, cost) return units(r, cost), r.burst end

local function over(g, r, need) return g[1] + min(need, floor(PRODUCT / r.every)) * r.every - r.burst * r.every end

function smooth.check(g, r, _, ahead, call)
  local own = units(r, call.cost)
  local most, likely = units_ahead(r, ahead)
  if over(g, r, own + most) <= 0 then return nil end
  local wait = cdiv(max(over(g, r, own + likely), 0), r.rate)
  if most ~= likely then wait = max(wait, SOON) end
  return g[2] + wait, {3, floor((r.burst * r.every - g[1]) / r.every), own, r.rate, r.every, r.unit}
end

function smooth.remaining(g, r, n) return floor(max(r.burst * r.every - g[1], 0) / (n * r.every)) end

function smooth.spend(g, r, _, call)
  local n = units(r, call.cost)
  g[1] = g[1] + n * r.every
  return smooth.remaining(g, r, max(n, 1))
end

-- Window, at `b` in its list: 1 grain, 2 total, 3 where the oldest entry is in the ring, 4 entries, 5 size of the ring, 6 and 7 ticks
-- of the oldest and the newest, 8 units of the newest, 9 when the ring's expiry was set. What passes writes one entry; what is
-- old is skipped without a write.
local ring_of, window_advance, window_spend, window_fresh, window_check

do -- a function has 200 locals at most
local LEAST_READ, MOST_READ = 8, 512
local NEW_WINDOW = {0, 0, 0, 0, 0, 0, 0, 0, 0}

function ring_of(sc, gate) return P .. ':r:' .. sc.rule.id .. ':' .. sc.key .. ':' .. gate.id_text end
local function leaves(r, tick) return (tick + 1) * r.grain - 1 + r.every end

-- Entries from number `from` on, the oldest is 0: at most `n`, and not beyond the end of the ring.
local function entries(g, b, ring, from, n)
  local at = (g[b + 3] + from) % g[b + 5]
  n = min(n, g[b + 4] - from, g[b + 5] - at)
  local raw = command('GETRANGE', ring, at * 16, (at + n) * 16 - 1)
  return raw, floor(#raw / 16)
end

-- Calls `each(tick, units)` for entries from the oldest on, until it returns true. How many it was called for.
local function walk(g, b, ring, each)
  local done, size = 0, LEAST_READ
  while done < g[b + 4] do
    local raw, n = entries(g, b, ring, done, size)
    -- Nothing: the ring was deleted by hand. What it held counts until the newest entry has left.
    if n == 0 then return done end
    for i = 0, n - 1 do
      done = done + 1
      local tick, worth = struct.unpack('<dd', raw, i * 16 + 1)
      if each(tick, worth) then return done end
    end
    size = min(size * 4, MOST_READ)
  end
  return done
end

local function write_entry(g, b, ring, number, tick, worth)
  command('SETRANGE', ring, (g[b + 3] + number) % g[b + 5] * 16, struct.pack('<dd', tick, worth))
end

-- Writes the ring anew, with room for `size` entries; ticks of another grain are mapped to the tick of their last microsecond.
local function rewrite(g, b, r, ring, size)
  local all, grain = {}, g[b + 1]
  walk(g, b, ring, function(tick, worth)
    if grain ~= r.grain then tick = floor(((tick + 1) * grain - 1) / r.grain) end
    if #all == 0 then g[b + 6] = tick end
    g[b + 7] = tick
    all[#all + 1] = struct.pack('<dd', tick, worth)
  end)
  g[b + 1], g[b + 3], g[b + 4], g[b + 5], g[b + 9] = r.grain, 0, #all, max(size, #all, 1), t
  put(ring, table.concat(all))
end

function window_advance(g, b, r, sc, gate)
  if g[b + 4] > 0 and g[b + 1] ~= r.grain then rewrite(g, b, r, ring_of(sc, gate), r.ring) end
  if g[b + 4] == 0 or leaves(r, g[b + 7]) <= t then
    g[b + 1], g[b + 2], g[b + 3], g[b + 4], g[b + 5] = r.grain, 0, 0, 0, r.ring
    return
  end
  if leaves(r, g[b + 6]) > t then return end
  local gone = 0
  walk(g, b, ring_of(sc, gate), function(tick, worth)
    g[b + 6] = tick
    if leaves(r, tick) > t then return true end
    gone, g[b + 2] = gone + 1, g[b + 2] - worth
  end)
  g[b + 3], g[b + 4] = (g[b + 3] + gone) % g[b + 5], g[b + 4] - gone
end

function window_spend(g, b, r, sc, gate, n)
  if n <= 0 then return end
  local tick, ring, count = floor(t / r.grain), ring_of(sc, gate), g[b + 4]
  g[b + 2] = g[b + 2] + n
  if count > 0 and g[b + 7] == tick then
    g[b + 8] = g[b + 8] + n
    write_entry(g, b, ring, count - 1, tick, g[b + 8])
    return
  end
  if count >= g[b + 5] then rewrite(g, b, r, ring, 2 * count) end
  write_entry(g, b, ring, count, tick, n)
  if count == 0 then g[b + 6] = tick end
  g[b + 4], g[b + 7], g[b + 8] = count + 1, tick, n
  if count == 0 or is_late(g[b + 9]) then
    command('EXPIRE', ring, TTL)
    g[b + 9] = t
  end
end

function window_fresh(g, b, r, lost, sc, gate)
  for i = 1, 9 do g[b + i] = NEW_WINDOW[i] end
  g[b + 1], g[b + 5] = r.grain, r.ring
  local tick = floor(max(lost, 0) / r.grain)
  if lost >= 0 and leaves(r, tick) > t then
    g[b + 2], g[b + 4], g[b + 6], g[b + 7], g[b + 8], g[b + 9] = r.max, 1, tick, tick, r.max, t
    put(ring_of(sc, gate), struct.pack('<dd', tick, r.max))
  end
end

function window_check(g, b, r, sc, gate, own, most, likely)
  if g[b + 2] + own + most <= r.max then return nil end
  local need = max(own + likely, 1)
  local windows = floor((need - 1) / r.max)
  local left, at = g[b + 2] + need - windows * r.max - r.max, t
  if left > 0 then
    at = leaves(r, g[b + 7])
    walk(g, b, ring_of(sc, gate), function(tick, worth)
      left = left - worth
      if left <= 0 then
        at = leaves(r, tick)
        return true
      end
    end)
  end
  at = at + windows * r.every
  if most ~= likely then at = max(at, t + SOON) end
  return at
end
end

local function window_remaining(g, b, r, n) return floor(max(r.max - g[b + 2], 0) / n) end

local window = {}
KINDS.window = window

function window.fresh(r, lost, sc, gate)
  local g = {}
  window_fresh(g, 0, r, lost, sc, gate)
  return g
end

function window.advance(g, r, sc, gate) window_advance(g, 0, r, sc, gate) end

function window.never(_, r, cost) return units(r, cost), r.max end

function window.check(g, r, sc, ahead, call, gate)
  local own = units(r, call.cost)
  local most, likely = units_ahead(r, ahead)
  local at = window_check(g, 0, r, sc, gate, own, most, likely)
  if not at then return nil end
  return at, {4, g[2], own, r.max, r.every, r.unit}
end

function window.spend(g, r, sc, call, gate)
  local n = units(r, call.cost)
  window_spend(g, 0, r, sc, gate, n)
  return window_remaining(g, 0, r, max(n, 1))
end

-- Reported level: 1 level, 2 at, 3 used at, 4 in flight, 5 sent, 6 capacity, 7 highest, 8 highest at, 9 observed, 10 rate, 11 answered,
-- 12 margin, 13 margin at, 14 shadow, 15 foreign, 16 admitted. Nano points where the specification says so.
local WRAP, level = 1125899906842624, {}
local level_advance, level_observe, level_settle
KINDS.level = level

do -- a function has 200 locals at most
local MARGIN_FALLS, CUT_RETRY, MAX_POINTS = 600000000, 5000000, 1000000000

local function refill(g, b)
  local full, gained = g[b + 6], (t - g[b + 2]) * g[b + 10]
  -- A product that is too large to be exact is larger than any capacity.
  local now, shadow = g[b + 1] + gained, g[b + 14] + gained
  if now > full then now = full end
  if shadow > full then shadow = full end
  g[b + 1], g[b + 14], g[b + 2] = now, shadow, t
end

function level.fresh(r, lost)
  local full = r.capacity * NANO
  local now, at = full, t
  if lost >= 0 then now, at = 0, lost end
  local g = {now, at, t, 0, 0, full, full, t, 0, r.rate, 0, 0, t, now, 0, 0}
  refill(g, 0)
  return g
end

function level_advance(g, b, r)
  if t - g[b + 3] >= FORGET and g[b + 4] == 0 then
    local new = level.fresh(r, -1)
    for i = 1, 16 do g[b + i] = new[i] end
    return
  end
  if g[b + 9] == 0 then
    local full = r.capacity * NANO
    g[b + 6], g[b + 7], g[b + 10], g[b + 8] = full, full, r.rate, t
  end
  refill(g, b)
end

function level.advance(g, r) level_advance(g, 0, r) end

function level.never(g, r, cost)
  if r.known or g[9] == 1 then return cost, floor(g[7] / NANO) end
  return cost, math.huge
end

local function level_margin(g, b)
  local gone = g[b + 2] - g[b + 13]
  if g[b + 12] == 0 or gone >= MARGIN_FALLS then return 0 end
  return floor(g[b + 12] / 1000) * (1000 - floor(gone * 1000 / MARGIN_FALLS))
end

local function short(g, margin, milli)
  local need = min(milli, floor(PRODUCT / NANO)) * NANO
  return max(need + margin - g[1], g[4] + need - PRODUCT)
end

function level.check(g, _, _, ahead, call)
  local cost = call.cost
  if cost * NANO > g[6] then return g[2] + CUT_RETRY, {6, floor(g[6] / NANO), cost} end
  local margin = min(level_margin(g, 0), g[6] - cost * NANO)
  if short(g, margin, ahead.cost + cost) <= 0 then return nil end
  local wait = cdiv(max(short(g, margin, ahead.likely + cost), 0), g[10])
  if ahead.cost ~= ahead.likely then wait = max(wait, SOON) end
  return g[2] + wait, {5, floor(g[1] / NANO), floor(g[6] / NANO), cost, floor(margin / NANO), g[10]}
end

-- Gates that change by what happens and not by time, see `first_hopes`.
level.events = {breaker = true, quota = true, event = true}

-- Before which time the first of a line must be able to pass to be called: much sooner than it was told.
function level.sooner(retry_at) return retry_at - max(SOON, floor((retry_at - t) / 8)) end

local NONE_AHEAD = {cost = 0, likely = 0}
function level.hopes(g, place, sooner)
  local at = level.check(g, nil, nil, NONE_AHEAD, place)
  return not at or at < sooner
end

function level.spend(g, _, _, call)
  local cost = call.cost
  local nano = cost * NANO
  g[1], g[14], g[4], g[3] = g[1] - nano, g[14] - nano, g[4] + nano, g[2]
  g[16] = (g[16] + cost) % WRAP
  call.mark = {g[11], g[16], g[2]}
  local margin = min(level_margin(g, 0), g[6] - nano)
  return floor(max(g[1] - margin, 0) / (max(cost, 1) * NANO))
end

local function raise_margin(g, b, to, most)
  to = min(to, most)
  if to > level_margin(g, b) then g[b + 12], g[b + 13] = to, g[b + 2] end
end

local function nano(milli) return min(milli, floor(PRODUCT / NANO)) * NANO end

-- A report: `seen` is {level, capacity, rate}, false where nothing was said. `answered`, `admitted`: milli points since that call was
-- admitted; nil if its lease is gone, and then the report only lowers. Returns foreign use.
function level_observe(g, b, sent, seen, answered, admitted)
  if sent < g[b + 5] then return 0 end
  g[b + 5] = sent
  local capacity, rate = seen[2], seen[3]
  if capacity and capacity >= 1 and capacity <= MAX_POINTS then
    g[b + 9], g[b + 6] = 1, capacity * NANO
    if g[b + 6] >= g[b + 7] or g[b + 2] - g[b + 8] >= FORGET then g[b + 7], g[b + 8] = g[b + 6], g[b + 2] end
  end
  if rate and rate >= 1 and rate <= MAX_POINTS then g[b + 9], g[b + 10] = 1, rate end
  local reported = seen[1]
  if not reported or math.abs(reported) > MAX_POINTS then return 0 end
  local high = reported * NANO - g[b + 4]
  if not answered then
    g[b + 1] = min(g[b + 1], high, g[b + 6])
    return 0
  end
  local low = high - nano(min(answered, admitted))
  g[b + 1] = min(max(g[b + 1], low), high, g[b + 6])
  local gained = min(g[b + 2] - sent, floor(PRODUCT / g[b + 10])) * g[b + 10]
  local foreign = max(g[b + 14] - gained - nano(answered) - reported * NANO, 0)
  if foreign > 0 then
    g[b + 14] = g[b + 14] - foreign
    g[b + 15] = (g[b + 15] + floor(foreign / NANO)) % WRAP
    raise_margin(g, b, min(foreign, g[b + 6]) * 2, floor(g[b + 6] / 4))
  end
  g[b + 14] = min(max(g[b + 14], low), g[b + 6])
  return floor(foreign / NANO)
end

-- A call ended. `mark`: answered, admitted and time when it was admitted; `actual`: milli points that were charged, false if unknown.
function level_settle(g, b, mark, cost, actual, throttled, seen)
  g[b + 4], g[b + 3] = g[b + 4] - cost * NANO, g[b + 2]
  local charged = actual or cost
  if throttled then charged = 0 end
  local back = (cost - charged) * NANO
  local said, full = seen and seen[1], g[b + 6]
  local shadow, now = g[b + 14] + back, g[b + 1] + back
  g[b + 14] = shadow < full and shadow or full
  if not said then g[b + 1] = now < full and now or full end
  local answered, admitted = (g[b + 11] - mark[1]) % WRAP, (g[b + 16] - mark[2]) % WRAP
  if not throttled then g[b + 11] = (g[b + 11] + cost) % WRAP end
  local foreign = 0
  if seen then foreign = level_observe(g, b, mark[3], seen, answered, admitted) end
  if throttled then
    raise_margin(g, b, level_margin(g, b) + max(cost * NANO, floor(g[b + 6] / 20)), floor(g[b + 6] / 2))
    if not said then g[b + 1] = min(g[b + 1], cost * NANO - 1 - g[b + 4]) end
  end
  return foreign
end
end
