-- Slots and locks, breaker, quota; and what is common to all kinds.

-- Pool: 1 used, 2 moving limit in thousandths (0: not moved), 3 cut at, 4 moved at, 5… used by level.
local MAX_POLL = 30 * SECOND

local function pool_advance(g)
  if g[2] ~= 0 and t - g[4] >= FORGET then g[2] = 0 end
end

local function pool_limit(g, r)
  if r.ceiling and g[2] ~= 0 then return clamp(floor(g[2] / 1000), r.floor, r.ceiling) end
  return r.limit
end

local function pool_free(g, r) return max(pool_limit(g, r) - g[1], 0) end

local function pool_check(g, r, level, ahead)
  local limit, kept, own = pool_limit(g, r), 0, false
  if r.reserved then
    for l, n in ipairs(r.reserved) do
      if l ~= level + 1 then kept = kept + max(n - g[4 + l], 0) end
    end
    own = g[1] < limit and g[5 + level] + ahead.own < r.reserved[level + 1]
  end
  if own or g[1] + kept + ahead.count < limit then return nil end
  local turns = floor(ahead.count / max(limit, 1)) + 1
  return t + min(r.poll * turns, MAX_POLL), r.lock and {8} or {7, g[1], limit}
end

local function pool_take(g, level, by)
  g[1] = max(g[1] + by, 0)
  g[5 + level] = max(g[5 + level] + by, 0)
end

-- The limit before and after, if it moved.
local function pool_moved(g, r, how, admitted)
  if not r.ceiling then return nil end
  local before = pool_limit(g, r)
  local now = g[2] == 0 and r.limit * 1000 or g[2]
  if how == 'throttled' then
    if g[3] ~= 0 and admitted <= g[3] then return nil end
    g[2] = max(floor(now * r.backoff / 1000), r.floor * 1000)
    g[3], g[4] = t, t
  elseif how == 'ok' then
    if g[1] * 4 < before * 3 then return nil end
    g[2] = min(now + floor(1000000 / now), r.ceiling * 1000)
    g[4] = t
  else
    return nil
  end
  local after = pool_limit(g, r)
  if before == after then return nil end
  return before, after
end

-- Breaker: 1 phase, 2 and 3 and 4 by phase: open (until), half (out, good, fence), ramp (since); 5… votes, seven numbers each:
-- process, half window, good before and now, bad before and now, open until.
local CLOSED, OPEN, HALF, RAMP = 0, 1, 2, 3
local MAX_PROCESSES, RAMP_STEPS = 64, 8

local function breaker_check(g, r, process, live, ahead)
  if g[1] == OPEN then
    if t < g[2] then return g[2], {9} end
    if ahead >= r.probes then return t + SECOND, {10, r.probes} end
  elseif g[1] == HALF then
    if g[2] + g[3] + ahead >= r.probes then return t + SECOND, {10, r.probes} end
  elseif g[1] == RAMP then
    local step = floor((t - g[2]) * RAMP_STEPS / max(r.ramp, 1))
    local allowed = min(r.probes * 2 ^ clamp(step, 0, RAMP_STEPS), U32)
    if step < RAMP_STEPS and live + ahead >= allowed then
      return max(g[2] + floor((step + 1) * r.ramp / RAMP_STEPS), t + 1), {11, live, allowed}
    end
  end
  for i = 5, #g, 7 do
    if g[i] == process then
      if t < g[i + 6] then return g[i + 6], {12} end
      break
    end
  end
  return nil
end

local function breaker_clear(g)
  for i = #g, 5, -1 do g[i] = nil end
end

local function breaker_open(g, till)
  g[1], g[2], g[3], g[4] = OPEN, till, 0, 0
  breaker_clear(g)
  return 1
end

-- Whether the call that passes is a probe.
local function breaker_pass(g, r, fence)
  if g[1] == OPEN then
    g[1], g[2], g[3], g[4] = HALF, 1, 0, fence - 1
    return true
  elseif g[1] == HALF then
    g[2] = g[2] + 1
    return true
  elseif g[1] == RAMP and t - g[2] >= r.ramp then
    g[1], g[2] = CLOSED, 0
  end
  return false
end

local function seat(g, process, half)
  for i = 5, #g, 7 do
    if g[i] == process then return i end
  end
  local at = #g + 1
  if #g >= 4 + 7 * MAX_PROCESSES then
    local least
    for i = 5, #g, 7 do
      local all = g[i + 2] + g[i + 3] + g[i + 4] + g[i + 5]
      if not least or all < least then least, at = all, i end
    end
  end
  g[at], g[at + 1] = process, half
  for i = 2, 6 do g[at + i] = 0 end
  return at
end

local function breaker_count(g, r, process, good)
  local half = floor(t / r.half)
  for i = 5, #g, 7 do
    local gone = half - g[i + 1]
    if gone == 1 then
      g[i + 2], g[i + 3], g[i + 4], g[i + 5] = g[i + 3], 0, g[i + 5], 0
    elseif gone ~= 0 then
      g[i + 2], g[i + 3], g[i + 4], g[i + 5] = 0, 0, 0, 0
    end
    g[i + 1] = half
  end
  local at = seat(g, process, half)
  if good then
    g[at + 3] = g[at + 3] + 1
    return nil
  end
  g[at + 5] = g[at + 5] + 1
  local bad, all, active, failing = 0, 0, 0, 0
  for i = 5, #g, 7 do
    local b = g[i + 4] + g[i + 5]
    local a = b + g[i + 2] + g[i + 3]
    if a > 0 then
      bad, all, active = bad + b, all + a, active + 1
      if b * 2 >= a then failing = failing + 1 end
    end
  end
  local function reached(b, a)
    if r.ratio then return a >= r.failures and b * 1000 >= r.ratio * a end
    return b >= r.failures
  end
  if reached(bad, all) and failing * 2 > active then return breaker_open(g, t + r.open) end
  local own = g[at + 4] + g[at + 5]
  if reached(own, own + g[at + 2] + g[at + 3]) and t >= g[at + 6] then
    g[at + 6] = t + r.open
    for i = 2, 5 do g[at + i] = 0 end
    return 4
  end
  return nil
end

-- A call ended; `vote` is 'good', 'bad' or 'neutral'. The state the breaker turned to, if it did: 0 closed, 1 open, 3 ramp, 4 open
-- for one process.
local function breaker_hear(g, r, process, fence, probe, vote)
  if g[1] == HALF then
    if not probe or fence <= g[4] then return nil end
    g[2] = max(g[2] - 1, 0)
    if vote == 'neutral' then return nil end
    if vote == 'bad' then return breaker_open(g, t + r.open) end
    g[3] = g[3] + 1
    if g[3] < r.probes then return nil end
    breaker_clear(g)
    g[3], g[4] = 0, 0
    if r.ramp == 0 then
      g[1], g[2] = CLOSED, 0
      return 0
    end
    g[1], g[2] = RAMP, t
    return 3
  elseif g[1] == OPEN or probe or vote == 'neutral' then
    return nil
  end
  return breaker_count(g, r, process, vote == 'good')
end

local function breaker_remaining(g, r)
  if g[1] == HALF then return max(r.probes - g[2] - g[3], 0) end
  return U32
end

-- Quota: 1 violations, 2 hoards, 3 window (false: none).
local function quota_advance(g, r)
  if not r.window then
    g[3] = false
  elseif not g[3] then
    g[3] = window_fresh(r.window, -1)
  else
    window_advance(g[3], r.window)
  end
end

local function quota_check(g, r, sc, cost, ahead)
  if r.slots and sc.live + ahead.count >= r.slots then
    local hoarding = sc.live + sc.count >= r.hoarding
    local turns = floor(ahead.count / r.slots) + 1
    return t + min(SECOND * turns, MAX_POLL), {13, sc.live, r.slots, hoarding and 1 or 0}
  end
  if not g[3] or not r.window then return nil end
  local at = window_check(g[3], r.window, cost, ahead.cost, ahead.likely)
  if not at then return nil end
  return at, {14, g[3][2], cost, r.window.max, r.window.every}
end

local function quota_remaining(g, r, live, cost)
  local slots = r.slots and max(r.slots - live, 0) or U32
  if g[3] and r.window then slots = min(slots, window_remaining(g[3], r.window, max(cost, 1))) end
  return slots
end

fresh_gate = function(kind, r, lost)
  if kind == 'smooth' then
    local g = smooth_fresh(r, lost)
    smooth_advance(g, r)
    return g
  elseif kind == 'window' then
    return window_fresh(r, lost)
  elseif kind == 'level' then
    return level_fresh(r, lost)
  elseif kind == 'pool' then
    return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
  elseif kind == 'breaker' then
    return {CLOSED, 0, 0, 0}
  end
  return {0, 0, r.window and window_fresh(r.window, lost) or false}
end

local function advance(kind, g, r)
  if kind == 'smooth' then
    smooth_advance(g, r)
  elseif kind == 'window' then
    window_advance(g, r)
  elseif kind == 'level' then
    level_advance(g, r)
  elseif kind == 'pool' then
    pool_advance(g)
  elseif kind == 'quota' then
    quota_advance(g, r)
  end
end
