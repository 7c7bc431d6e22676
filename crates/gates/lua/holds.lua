-- Slots and locks, breaker, quota; and what is common to all kinds.

-- Pool: 1 used, 2 moving limit in thousandths (0: not moved), 3 cut at, 4 moved at, 5… used by level, as far as any was.
local MAX_POLL = 10 * SECOND

local pool = {}
KINDS.pool = pool

function pool.fresh() return {0, 0, 0, 0} end

function pool.advance(g)
  if g[2] ~= 0 and t - g[4] >= FORGET then g[2] = 0 end
end

local function pool_limit(g, r)
  if r.ceiling and g[2] ~= 0 then return clamp(floor(g[2] / 1000), r.floor, r.ceiling) end
  return r.limit
end

local function pool_free(g, r) return max(pool_limit(g, r) - g[1], 0) end

-- How soon somebody asks again who waits for one of so many slots. It would be called, so the first ones ask soon, and less often the longer
-- they have waited, the others hardly ever; but all of them when a lease would end in silence, and the first ones when a place would, since
-- then nobody is called. If it is dead, its place is gone as soon as a lease would be.
function pool.poll(soonest, ahead, limit, call)
  local turns = floor(ahead / max(limit, 1)) + 1
  local first = max(soonest, min(2 * (t - call.arrived), 5 * SECOND))
  local silent = tonumber(command('ZRANGE', P .. ':e', '0', '0', 'WITHSCORES')[2] or math.huge)
  if turns == 1 then
    local ends = command('ZRANGE', P .. ':q', '0', '1', 'WITHSCORES')
    silent = min(silent, tonumber(ends[ends[1] == call.holder and 4 or 2] or math.huge))
  end
  return min(first * turns * turns, max(min(MAX_POLL, call.length - C.grace, silent - t), soonest))
end

function pool.check(g, r, _, ahead, call)
  local limit, kept, own = pool_limit(g, r), 0, false
  if r.reserved then
    local mine = call.level + 1
    for l, n in ipairs(r.reserved) do
      if l ~= mine then kept = kept + max(n - (g[4 + l] or 0), 0) end
    end
    own = g[1] < limit and (g[4 + mine] or 0) + ahead.own < r.reserved[mine]
  end
  if own or g[1] + kept + ahead.count < limit then return nil end
  return t + pool.poll(r.poll, ahead.count, limit, call), r.lock and {8} or {7, g[1], limit}
end

local function pool_take(g, at, by)
  g[1] = max(g[1] + by, 0)
  for l = #g + 1, 5 + at do g[l] = 0 end
  g[5 + at] = max(g[5 + at] + by, 0)
end

function pool.spend(g, r, _, call)
  pool_take(g, call.level, 1)
  return pool_free(g, r)
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

-- Breaker: 1 phase, 2 and 3 and 4 by phase: open (until), half (out, good, fence), ramp (since); 5 probes of earlier
-- times that are still out; 6… votes, seven numbers each: process, half window, good before and now, bad before and now, open
-- until.
local CLOSED, OPEN, HALF, RAMP = 0, 1, 2, 3
local MAX_PROCESSES, RAMP_STEPS = 64, 8

local breaker = {}
KINDS.breaker = breaker

function breaker.fresh() return {CLOSED, 0, 0, 0, 0} end

-- Whether nobody would notice if its state were forgotten.
local function breaker_rests(g, r)
  if g[1] == OPEN or g[1] == HALF or (g[1] == RAMP and t - g[2] < r.ramp) or g[5] > 0 then return false end
  local half = floor(t / r.half)
  for i = 6, #g, 7 do
    if half - g[i + 1] <= 1 or t < g[i + 6] then return false end
  end
  return true
end

-- Until when an operator keeps it open for all keys; 0: not at all.
local function ordered_open(gate)
  local orders = H[13] or NOTHING
  local till, told = orders[gate.id] or 0, orders[-gate.id] or 0
  for _, word in ipairs(args.words or NOTHING) do
    -- Also what the partition has no time of: a version without times has said it.
    if word[1] == gate.i and word[3] >= told then till = max(till, word[2]) end
  end
  return till > 0 and till + offset or 0
end

function breaker.check(g, r, sc, before, call, gate)
  local ordered = ordered_open(gate)
  if ordered > t then return ordered, {9} end
  if g[1] == CLOSED and #g == 5 then return nil end
  local live, ahead = sc.live, before.count
  if g[1] == OPEN then
    if t < g[2] then return g[2], {9} end
    if g[5] + ahead >= r.probes then return t + SECOND, {10, r.probes} end
  elseif g[1] == HALF then
    if g[2] + max(g[3], g[5]) + ahead >= r.probes then return t + SECOND, {10, r.probes} end
  elseif g[1] == RAMP then
    local step = floor((t - g[2]) * RAMP_STEPS / max(r.ramp, 1))
    local allowed = min(r.probes * 2 ^ clamp(step, 0, RAMP_STEPS), U32)
    if step < RAMP_STEPS and live + ahead >= allowed then
      return max(g[2] + floor((step + 1) * r.ramp / RAMP_STEPS), t + 1), {11, live, allowed}
    end
  end
  for i = 6, #g, 7 do
    if g[i] == call.process then
      if t < g[i + 6] then return g[i + 6], {12} end
      break
    end
  end
  return nil
end

-- A new time begins: votes are forgotten, probes that are out are those of an earlier one.
local function breaker_turn(g, phase, at)
  if g[1] == HALF then g[5] = g[5] + g[2] end
  g[1], g[2], g[3], g[4] = phase, at, 0, 0
  for i = #g, 6, -1 do g[i] = nil end
end

local function breaker_open(g, till)
  breaker_turn(g, OPEN, till)
  return 1
end

-- A call passes: what is left, and whether it is a probe.
function breaker.spend(g, r, _, call)
  if g[1] == OPEN then
    g[1], g[2], g[3], g[4] = HALF, 1, 0, call.fence - 1
  elseif g[1] == HALF then
    g[2] = g[2] + 1
  else
    if g[1] == RAMP and t - g[2] >= r.ramp then g[1], g[2] = CLOSED, 0 end
    return U32, false
  end
  return max(r.probes - g[2] - max(g[3], g[5]), 0), true
end

local function seat(g, process, half)
  for i = 6, #g, 7 do
    if g[i] == process then return i end
  end
  local at = #g + 1
  if #g >= 5 + 7 * MAX_PROCESSES then
    local least
    for i = 6, #g, 7 do
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
  for i = 6, #g, 7 do
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
  for i = 6, #g, 7 do
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
    if not probe then return nil end
    if fence <= g[4] then
      g[5] = max(g[5] - 1, 0)
      return nil
    end
    g[2] = max(g[2] - 1, 0)
    if vote == 'neutral' then return nil end
    if vote == 'bad' then return breaker_open(g, t + r.open) end
    g[3] = g[3] + 1
    if g[3] < r.probes then return nil end
    if r.ramp == 0 then
      breaker_turn(g, CLOSED, 0)
      return 0
    end
    breaker_turn(g, RAMP, t)
    return 3
  elseif probe then
    g[5] = max(g[5] - 1, 0)
    return nil
  elseif g[1] == OPEN or vote == 'neutral' then
    return nil
  end
  return breaker_count(g, r, process, vote == 'good')
end

-- Quota: 1 violations, 2 hoards, 3 when the last one was, 4 whether there is a window, 5… the window.
local quota = {}
KINDS.quota = quota

function quota.fresh(r, lost, sc, gate)
  local g = {0, 0, 0, 0}
  if r.window then
    g[4] = 1
    window_fresh(g, 4, r.window, lost, sc, gate)
  end
  return g
end

function quota.advance(g, r, sc, gate)
  if t - g[3] >= FORGET then g[1], g[2] = 0, 0 end
  if not r.window then
    g[4] = 0
  elseif g[4] == 0 then
    g[4] = 1
    window_fresh(g, 4, r.window, -1, sc, gate)
  else
    window_advance(g, 4, r.window, sc, gate)
  end
end

function quota.never(_, r, cost) return cost, r.window and r.window.max or math.huge end

function quota.check(g, r, sc, ahead, call, gate)
  if r.slots and sc.live + ahead.count >= r.slots then
    local hoarding = sc.live + sc.count >= r.hoarding
    return t + pool.poll(SECOND, ahead.count, r.slots, call), {13, sc.live, r.slots, hoarding and 1 or 0}
  end
  if g[4] == 0 or not r.window then return nil end
  local at = window_check(g, 4, r.window, sc, gate, call.cost, ahead.cost, ahead.likely)
  if not at then return nil end
  return at, {14, g[6], call.cost, r.window.max, r.window.every}
end

function quota.spend(g, r, sc, call, gate)
  local left = r.slots and max(r.slots - sc.live, 0) or U32
  if g[4] == 0 or not r.window then return left end
  window_spend(g, 4, r.window, sc, gate, call.cost)
  return min(left, window_remaining(g, 4, r.window, max(call.cost, 1)))
end

-- Somebody new had to wait because of it.
local function quota_violated(g, because)
  g[1], g[3] = g[1] + 1, t
  if because[1] == 13 and because[4] == 1 then g[2] = g[2] + 1 end
end
