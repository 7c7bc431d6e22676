-- Smooth rate, window and reported level. States are lists of numbers; `r` are the settings.

local function units(r, cost) return r.unit == 1 and cost or 1 end
local function units_ahead(r, ahead)
  if r.unit == 1 then return ahead.cost, ahead.likely end
  return ahead.count, ahead.count
end

-- Smooth: 1 level, 2 at.
local function smooth_fresh(r, lost)
  if lost < 0 then return {0, t} end
  return {r.burst * r.every, lost}
end

local function smooth_advance(g, r)
  if g[1] > 0 then
    local elapsed = t - g[2]
    if elapsed >= cdiv(g[1], r.rate) then g[1] = 0 else g[1] = g[1] - elapsed * r.rate end
  end
  g[2] = t
end

local function smooth_check(g, r, cost, ahead)
  local own = units(r, cost)
  local most, likely = units_ahead(r, ahead)
  local cap = floor(PRODUCT / r.every)
  local function over(before) return g[1] + min(own + before, cap) * r.every - r.burst * r.every end
  if over(most) <= 0 then return nil end
  local wait = cdiv(max(over(likely), 0), r.rate)
  if most ~= likely then wait = max(wait, SOON) end
  return g[2] + wait, {3, floor((r.burst * r.every - g[1]) / r.every), own, r.rate, r.every, r.unit}
end

local function smooth_remaining(g, r, n) return floor(max(r.burst * r.every - g[1], 0) / (n * r.every)) end

-- Window: 1 grain, 2 total, 3 log: (tick, units) as pairs of doubles, the oldest first.
local function leaves(r, tick) return (tick + 1) * r.grain - 1 + r.every end

local function window_advance(g, r)
  local log = g[3]
  if g[1] ~= r.grain then
    local mapped = {}
    for i = 1, #log, 16 do
      local tick, worth = struct.unpack('<dd', log, i)
      mapped[#mapped + 1] = struct.pack('<dd', floor(((tick + 1) * g[1] - 1) / r.grain), worth)
    end
    log = table.concat(mapped)
    g[1], g[3] = r.grain, log
  end
  if #log == 0 then return end
  if leaves(r, (struct.unpack('<d', log, #log - 15))) <= t then
    g[2], g[3] = 0, ''
    return
  end
  local at = 1
  while true do
    local tick, worth = struct.unpack('<dd', log, at)
    if leaves(r, tick) > t then break end
    g[2] = g[2] - worth
    at = at + 16
  end
  if at > 1 then g[3] = string.sub(log, at) end
end

local function window_fresh(r, lost)
  local g = {r.grain, 0, ''}
  if lost >= 0 then
    g[2], g[3] = r.max, struct.pack('<dd', floor(lost / r.grain), r.max)
    window_advance(g, r)
  end
  return g
end

local function window_check(g, r, own, most, likely)
  if g[2] + own + most <= r.max then return nil end
  local need = max(own + likely, 1)
  local windows = floor((need - 1) / r.max)
  local surplus = g[2] + need - windows * r.max - r.max
  local at = t
  if surplus > 0 then
    local log, left = g[3], surplus
    for i = 1, #log, 16 do
      local tick, worth = struct.unpack('<dd', log, i)
      at = leaves(r, tick)
      left = left - worth
      if left <= 0 then break end
    end
  end
  at = at + windows * r.every
  if most ~= likely then at = max(at, t + SOON) end
  return at
end

local function window_spend(g, r, n)
  if n <= 0 then return end
  local tick = floor(t / r.grain)
  g[2] = g[2] + n
  local log = g[3]
  if #log > 0 then
    local last, worth = struct.unpack('<dd', log, #log - 15)
    if last == tick then
      g[3] = string.sub(log, 1, -17) .. struct.pack('<dd', tick, worth + n)
      return
    end
  end
  g[3] = log .. struct.pack('<dd', tick, n)
end

local function window_remaining(g, r, n) return floor(max(r.max - g[2], 0) / n) end

-- Reported level: 1 level, 2 at, 3 used at, 4 in flight, 5 sent, 6 capacity, 7 highest, 8 highest at, 9 observed, 10 rate, 11 answered,
-- 12 margin, 13 margin at, 14 shadow, 15 foreign, 16 admitted. Nano points where the specification says so.
local MARGIN_FALLS, CUT_RETRY, WRAP = 600000000, 5000000, 1125899906842624
local MAX_POINTS = 1000000000

local function refilled(g, level, elapsed)
  if level >= g[6] or elapsed >= cdiv(g[6] - level, g[10]) then return g[6] end
  return level + elapsed * g[10]
end

local function refill(g)
  local elapsed = t - g[2]
  g[1], g[14], g[2] = refilled(g, g[1], elapsed), refilled(g, g[14], elapsed), t
end

local function level_fresh(r, lost)
  local full = r.capacity * NANO
  local level, at = full, t
  if lost >= 0 then level, at = 0, lost end
  local g = {level, at, t, 0, 0, full, full, t, 0, r.rate, 0, 0, t, level, 0, 0}
  refill(g)
  return g
end

local function level_advance(g, r)
  if t - g[3] >= FORGET and g[4] == 0 then
    local new = level_fresh(r, -1)
    for i = 1, 16 do g[i] = new[i] end
    return
  end
  if g[9] == 0 then g[6], g[7], g[10] = r.capacity * NANO, r.capacity * NANO, r.rate end
  refill(g)
end

local function level_margin(g)
  local gone = g[2] - g[13]
  if g[12] == 0 or gone >= MARGIN_FALLS then return 0 end
  return floor(g[12] / 1000) * (1000 - floor(gone * 1000 / MARGIN_FALLS))
end

local function level_check(g, cost, ahead)
  if cost * NANO > g[6] then return g[2] + CUT_RETRY, {6, floor(g[6] / NANO), cost} end
  local margin = min(level_margin(g), g[6] - cost * NANO)
  local function short(before)
    local need = min(before + cost, floor(PRODUCT / NANO)) * NANO
    return max(need + margin - g[1], g[4] + need - PRODUCT)
  end
  if short(ahead.cost) <= 0 then return nil end
  local wait = cdiv(max(short(ahead.likely), 0), g[10])
  if ahead.cost ~= ahead.likely then wait = max(wait, SOON) end
  return g[2] + wait, {5, floor(g[1] / NANO), floor(g[6] / NANO), cost, floor(margin / NANO), g[10]}
end

local function level_spend(g, cost)
  g[1], g[14], g[4], g[3] = g[1] - cost * NANO, g[14] - cost * NANO, g[4] + cost * NANO, g[2]
  g[16] = (g[16] + cost) % WRAP
  return {g[11], g[16], g[2]}
end

local function level_remaining(g, cost)
  local margin = min(level_margin(g), g[6] - cost * NANO)
  return floor(max(g[1] - margin, 0) / (max(cost, 1) * NANO))
end

local function raise_margin(g, to, most)
  to = min(to, most)
  if to > level_margin(g) then g[12], g[13] = to, g[2] end
end

local function nano(milli) return min(milli, floor(PRODUCT / NANO)) * NANO end

-- A report: `seen` is {level, capacity, rate}, false where nothing was said. `answered`, `admitted`: milli points since that call was
-- admitted; nil if its lease is gone, and then the report only lowers. Returns foreign use.
local function level_observe(g, sent, seen, answered, admitted)
  if sent < g[5] then return 0 end
  g[5] = sent
  local capacity, rate = seen[2], seen[3]
  if capacity and capacity >= 1 and capacity <= MAX_POINTS then
    g[9], g[6] = 1, capacity * NANO
    if g[6] >= g[7] or g[2] - g[8] >= FORGET then g[7], g[8] = g[6], g[2] end
  end
  if rate and rate >= 1 and rate <= MAX_POINTS then g[9], g[10] = 1, rate end
  local reported = seen[1]
  if not reported or math.abs(reported) > MAX_POINTS then return 0 end
  local high = reported * NANO - g[4]
  if not answered then
    g[1] = min(g[1], high, g[6])
    return 0
  end
  local low = high - nano(min(answered, admitted))
  g[1] = min(max(g[1], low), high, g[6])
  local gained = min(g[2] - sent, floor(PRODUCT / g[10])) * g[10]
  local foreign = max(g[14] - gained - nano(answered) - reported * NANO, 0)
  if foreign > 0 then
    g[14] = g[14] - foreign
    g[15] = (g[15] + floor(foreign / NANO)) % WRAP
    raise_margin(g, min(foreign, g[6]) * 2, floor(g[6] / 4))
  end
  g[14] = min(max(g[14], low), g[6])
  return floor(foreign / NANO)
end

-- A call ended. `mark`: answered, admitted and time when it was admitted; `actual`: milli points that were charged, false if unknown.
local function level_settle(g, mark, cost, actual, throttled, seen)
  g[4], g[3] = g[4] - cost * NANO, g[2]
  local charged = actual or cost
  if throttled then charged = 0 end
  local back = (cost - charged) * NANO
  g[14] = min(g[14] + back, g[6])
  local said = seen and seen[1]
  if not said then g[1] = min(g[1] + back, g[6]) end
  local answered, admitted = (g[11] - mark[1]) % WRAP, (g[16] - mark[2]) % WRAP
  if not throttled then g[11] = (g[11] + cost) % WRAP end
  local foreign = 0
  if seen then foreign = level_observe(g, mark[3], seen, answered, admitted) end
  if throttled then
    raise_margin(g, level_margin(g) + max(cost * NANO, floor(g[6] / 20)), floor(g[6] / 2))
    if not said then g[1] = min(g[1], cost * NANO - 1 - g[4]) end
  end
  return foreign
end
