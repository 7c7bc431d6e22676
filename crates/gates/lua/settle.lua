-- Ends the call of a permit. args from 3: holder; as doubles fence, retry_after, actual, whether something was observed, level,
-- capacity and rate (each NaN: not said), admitted_at; end; the five parts of the target with slashes between.
-- Reply: {0 released, 1 quarantined, 2 gone; until; woken; changes: {kind, gate, …} …}; usually 0 alone: released, and nothing else; or those who
-- are woken, with spaces between: released, and no changes.
local COOL_DOWN, MAX_COOL_DOWN = SECOND, 86400 * SECOND

local function finish(touched, state, till, changes)
  local woken = wake(touched, WOKEN)
  save_places()
  save()
  return {state, till, woken, changes}
end

-- An answer came after its lease had gone: a reported level may still lower the bucket.
local function late_report(admitted_at, seen)
  local found = resolve()
  for _, gate in ipairs(C.gates) do
    local sc = found[gate.s]
    if sc and gate.k == 'level' then
      local g = gate_state(sc, gate)
      level.advance(g, settings(gate, sc.key))
      level_observe(g, 0, admitted_at + offset, seen)
    end
  end
end

-- Closes the scope of the narrowest rate gate of the call until then.
local function cool_down(lease, till)
  local narrowest, width
  for _, gate in ipairs(C.gates) do
    local rule = C.scopes[gate.s]
    if gate.rate and not is_off(gate) and key_of(rule, lease.parts) then
      local w = #rule.parts * 2 + (rule.only and 1 or 0)
      if not width or w > width then narrowest, width = gate.s, w end
    end
  end
  if narrowest then
    local sc = scope_of(lease, narrowest)
    sc.cool = max(sc.cool, till)
  end
end

-- What the answer says; the changes it makes.
local function learn(lease, ending, retry_after, actual, seen)
  local throttled, vote, changes = ending == 'throttled', 'neutral', {}
  if ending == 'ok' or ending == 'request' then vote = 'good' end
  if ending == 'failed' or ending == 'timed_out' then vote = 'bad' end
  if ending == 'unused' then actual = 0 end
  for i, gate in ipairs(C.gates) do
    local k = gate.k
    if (k == 'level' or k == 'breaker' or k == 'pool') and lease.held[gate.id] then
      local sc = scope_of(lease, gate.s)
      if sc then
        local g, r = gate_state(sc, gate), settings(gate, sc.key)
        if k == 'level' then
          level.advance(g, r)
          local foreign = level_settle(g, 0, lease.mark, lease.cost, actual, throttled, seen)
          if foreign > 0 then changes[#changes + 1] = {2, i - 1, foreign} end
        elseif k == 'breaker' then
          local to = breaker_hear(g, r, lease.process, lease.fence, lease.probes[gate.id], vote)
          if to then changes[#changes + 1] = {1, i - 1, to} end
        else
          pool.advance(g)
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
  return changes
end

operation('settle', function()
  local holder, ending = args[3], args[5]
  local fence, retry_after, actual, observed, reported, capacity, rate, admitted_at = struct.unpack('>dddddddd', args[4])
  retry_after, actual = known(retry_after), known(actual) or false
  local seen = observed == 1 and {known(reported) or false, known(capacity) or false, known(rate) or false} or nil
  local key = live_key(holder)
  local raw = fetch(6, key)
  if raw and target_raw and C.quick and (ending == 'ok' or ending == 'request' or ending == 'unused') then
    local voted = ending ~= 'unused'
    if not voted then actual = 0 end
    local reply = quick_settle(holder, key, fence, raw, voted, actual, seen)
    if reply then return reply end
  end
  open_fetched()
  read_lease(key, holder, raw)
  local touched = {}
  purge(touched)
  local lease, shut = held_by(holder, fence)
  if not lease then
    if seen then late_report(admitted_at, seen) end
    return finish(touched, 2, 0, {})
  end
  local unknown = ending == 'abandoned' or ending == 'timed_out'
  if shut then
    if unknown then return finish(touched, 2, 0, {}) end
    give_back(lease, touched)
    return finish(touched, 0, 0, {})
  end
  local changes = learn(lease, ending, retry_after, actual, seen)
  if unknown and C.quarantine > 0 and holds_pool(lease) then
    local till = t + C.quarantine
    quarantine(lease, till)
    return finish(touched, 1, till - offset, changes)
  end
  give_back(lease, touched)
  return finish(touched, 0, 0, changes)
end, true)
