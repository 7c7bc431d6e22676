-- Ends the call of a permit. ARGV from 4: holder, fence, end, retry_after, actual, whether something was observed, level, capacity and
-- rate (each empty: not said), admitted_at, the five parts of the target.
-- Reply: {0 released, 1 quarantined, 2 gone; until; woken; changes: {kind, gate, …} …}
local holder, fence, ending = ARGV[4], tonumber(ARGV[5]), ARGV[6]
local retry_after, actual = tonumber(ARGV[7]), tonumber(ARGV[8]) or false
local seen = nil
if ARGV[9] == '1' then
  seen = {tonumber(ARGV[10]) or false, tonumber(ARGV[11]) or false, tonumber(ARGV[12]) or false}
end
local admitted_at = tonumber(ARGV[13])
local parts = {ARGV[14], ARGV[15], ARGV[16], ARGV[17], ARGV[18]}
local COOL_DOWN, MAX_COOL_DOWN = SECOND, 86400 * SECOND

local keys = missing_keys(parts)
local others = #keys
keys[others + 1], keys[others + 2] = live_key(holder), P
local raws = redis.call('MGET', unpack(keys))
open(raws[others + 2])
read_lease(keys[others + 1], holder, raws[others + 1])
do -- The keys of the target, so that they need not be read one by one.
  local at = 0
  for s, rule in ipairs(C.scopes) do
    if not rule.root then
      local key = key_of(rule, parts)
      if key then
        at = at + 1
        scope(s, key, raws[at])
      end
    end
  end
end

local touched, changes = {}, {}

local function finish(state, till)
  local woken = wake(touched, WOKEN)
  save_places()
  save()
  return {state, till, woken, changes}
end

-- An answer came after its lease had gone: a reported level may still lower the bucket.
local function late_report()
  if not seen then return end
  local found = resolve(parts)
  for _, gate in ipairs(C.gates) do
    local sc = found[gate.s]
    if sc and gate.k == 'level' then
      local g = sc.gates[gate.id]
      level_advance(g, settings(gate, sc.key))
      level_observe(g, admitted_at + offset, seen)
    end
  end
end

-- Closes the scope of the narrowest rate gate of the call until then.
local function cool_down(lease, till)
  local narrowest, width
  for _, gate in ipairs(C.gates) do
    local rule = C.scopes[gate.s]
    local rate = gate.k == 'smooth' or gate.k == 'window' or gate.k == 'level'
    if rate and not gate.off and key_of(rule, lease.parts) then
      local w = #rule.parts * 2 + (rule.only and 1 or 0)
      if not width or w > width then narrowest, width = gate.s, w end
    end
  end
  if narrowest then
    local sc = scope_of(lease, narrowest)
    sc.cool = max(sc.cool, till)
  end
end

local function learn(lease)
  local throttled, vote = ending == 'throttled', 'neutral'
  if ending == 'ok' or ending == 'request' then vote = 'good' end
  if ending == 'failed' or ending == 'timed_out' then vote = 'bad' end
  if ending == 'unused' then actual = 0 end
  for i, gate in ipairs(C.gates) do
    if lease.held[gate.id] and (gate.k == 'level' or gate.k == 'breaker' or gate.k == 'pool') then
      local sc = scope_of(lease, gate.s)
      if sc then
        local g, r = gate_state(sc, gate), settings(gate, sc.key)
        if gate.k == 'level' then
          level_advance(g, r)
          local foreign = level_settle(g, lease.mark, lease.cost, actual, throttled, seen)
          if foreign > 0 then changes[#changes + 1] = {2, i - 1, foreign} end
        elseif gate.k == 'breaker' then
          local to = breaker_hear(g, r, lease.process, lease.fence, lease.probes[gate.id], vote)
          if to then changes[#changes + 1] = {1, i - 1, to} end
        else
          pool_advance(g)
          local from, to = pool_moved(g, r, ending, lease.admitted_at)
          if from then changes[#changes + 1] = {0, i - 1, from, to, throttled and 1 or 0} end
        end
      end
    end
  end
  if throttled then
    local pause = COOL_DOWN
    if retry_after then
      pause = clamp(retry_after, 0, MAX_COOL_DOWN)
    elseif seen and seen[1] then
      pause = 0
    end
    cool_down(lease, t + pause)
  end
end

purge(touched)
local lease, shut = held_by(holder, fence)
if not lease then
  late_report()
  return finish(2, 0)
end
local unknown = ending == 'abandoned' or ending == 'timed_out'
if shut then
  if unknown then return finish(2, 0) end
  give_back(lease, touched)
  return finish(0, 0)
end
learn(lease)
if unknown and C.quarantine > 0 and holds_pool(lease) then
  local till = t + C.quarantine
  quarantine(lease, till)
  return finish(1, till - offset)
end
give_back(lease, touched)
return finish(0, 0)
