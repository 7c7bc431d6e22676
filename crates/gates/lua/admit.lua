-- Asks all gates of a call at once. args from 3: holder; as doubles ask, cost, level, lease, deadline, since (NaN: none), whether a
-- place is wanted, process, whether cost and lease are within bounds; the five parts of the target with slashes between.
-- Reply: {kind, new partition, …}; of the usual admission fence, admitted_at, use_by, expires_at, remaining, three others, and the room of all
-- and of the caller's own, alone, as doubles.
--   0 admitted: fence, cost, admitted_at, use_by, expires_at, remaining, room of all, of its own, woken, parts of the target if it is an
--   older permit
--   1 wait: gate, retry_at, position (0: none), arrived, woken, reason …      2 refused: gate, reason, cost, capacity, woken
local NOBODY = {count = 0, own = 0, cost = 0, likely = 0}

local freed -- scope keys of what had lapsed, and of what the caller gave up

local function finish(reply)
  -- Those who may have that are called, too.
  local at = reply[1] == 0 and 11 or 7
  if freed[1] then reply[at] = wake(freed, WOKEN, reply[at], args[3]) end
  save_places()
  reply[2] = save(true)
  return reply
end

local function permit(lease, remaining, room, woken, older)
  return {
    0, 0, lease.fence, lease.cost, lease.admitted_at - offset, lease.use_by - offset, lease.ends - offset, remaining, room[0], room[1],
    woken, older,
  }
end

local function refuse(holder, gate, reason, needs, capacity)
  local place = place_of(holder)
  if place then remove_place(place, false, freed) end
  return finish({2, 0, gate, reason, needs, capacity, {}})
end

-- Lets time pass, and looks whether some gate will never let this call pass. The states and settings of its gates, by number.
local function prepare(found, cost)
  local states, rules, gates = {}, {}, C.gates
  for i = 1, #gates do
    local gate = gates[i]
    local sc = found[gate.s]
    if sc then
      local g, r = gate_state(sc, gate), settings(gate, sc.key)
      states[i], rules[i] = g, r
      if gate.kind.advance then gate.kind.advance(g, r, sc, gate) end
    end
  end
  for i = 1, #gates do
    local gate = gates[i]
    if states[i] and gate.kind.never and not is_off(gate) then
      local needs, capacity = gate.kind.never(states[i], rules[i], cost)
      if needs > capacity then return nil, i - 1, needs, capacity end
    end
  end
  return states, rules
end

local function commit(found, states, rules, place, call)
  local touched = {}
  if place then remove_place(place, true, touched) end
  H[3] = max(H[3] + 1, t)
  local fence, held, probes, counted, remaining, room = H[3], {}, '', {}, U32, {[0] = U32, U32, U32}
  call.fence, call.mark = fence, {0, 0, 0}
  for s, rule in ipairs(C.scopes) do
    if found[s] then
      found[s].live = found[s].live + 1
      counted[#counted + 1] = rule.id
    end
  end
  for i, gate in ipairs(C.gates) do
    if states[i] and not is_off(gate) then
      local left, probe = gate.kind.spend(states[i], rules[i], found[gate.s], call, gate)
      if probe then probes = probes .. gate.packed end
      held[#held + 1] = gate.packed
      if left < remaining then remaining = left end
      -- What is left after those that wait.
      local whose = C.scopes[gate.s].whose
      if left < U32 then room[whose] = min(room[whose], max(left - found[gate.s].count, 0)) end
    end
  end
  -- Most calls pass all gates of a set: what follows from that is the same string for all of them.
  local complete = #counted == #C.scopes
  local lease = {
    fence = fence, ask = call.ask, level = call.level, process = call.process, cost = call.cost, length = call.length,
    admitted_at = t, use_by = t + C.use_by, ends = t + call.length, mark = call.mark, shut = 0, holder = call.holder,
    key = live_key(call.holder), held_packed = #held == #C.gates and C.all_packed or table.concat(held), probes_packed = probes,
    tail = (complete and C.all_counted or ',' .. table.concat(counted, ',') .. ',') .. '|' .. target_text,
  }
  H[7] = H[7] + 1
  write_lease(lease)
  end_at(lease)
  return finish(permit(lease, remaining, room, wake(touched, 1), {}))
end

-- Who stands before a call that a bucket refuses, and could pass: it was called and has not heard it, or what it was told is long out
-- of date. Nobody settles anything while all wait for it, so who asks finds it out.
local function overdue(found, ahead, refused)
  local touched = {}
  for s, rule in ipairs(C.scopes) do
    if refused[s] and rule.level and ahead[s].count > 0 and first_hopes(found[s], true) then touched[#touched + 1] = found[s] end
  end
  return wake(touched, 1)
end

-- Nothing was reserved; the call may keep a place in line.
local function keep_place(found, states, place, call, ahead, refused, gate, because, retry_at)
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
  local wanted = call.wants and not (call.deadline and retry_at >= call.deadline + offset)
  local reply = {1, 0, gate - 1, retry_at - offset, 0, call.arrived - offset, overdue(found, ahead, refused)}
  for i, n in ipairs(because) do reply[7 + i] = n end
  if not wanted then
    if place then remove_place(place, false, freed) end
    return finish(reply)
  end
  if not place then
    local sc = found[binding]
    if sc.count >= C.max then
      for i = #reply, 8, -1 do reply[i] = nil end
      reply[8], reply[9] = 1, sc.count
      return finish(reply)
    end
    if C.gates[gate].k == 'quota' then quota_violated(states[gate], because) end
    H[4], H[9] = H[4] + 1, H[9] + 1
    place = {
      seq = H[4], level = call.level, cost = call.cost, arrived = call.arrived, retry_at = t, ends = t, gate = '', channel = args[2],
      parts = call.parts, stands = {}, holder = call.holder,
    }
    places[call.holder] = place
    place_added = 1
  elseif place.channel ~= args[2] then
    move_channel(place, args[2])
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
  place.retry_at, place.gate, place.ends = retry_at, C.gates[gate].name, retry_at + C.grace
  place.dirty = true
  command('ZADD', P .. ':q', stamp(place.ends), call.holder)
  if H[6] == 0 or place.ends < H[6] then H[6] = place.ends end
  reply[5] = ahead[binding].count + 1
  return finish(reply)
end

operation('admit', function()
  local holder = args[3]
  local ask, cost, at, length, deadline, since, wants, process, valid = struct.unpack('>ddddddddd', args[4])
  -- Not a number: there is none.
  if deadline ~= deadline then deadline = nil end
  if since ~= since then since = nil end
  place_raw = nil
  local key = live_key(holder)
  local lease_text = fetch(5, key)
  if target_raw and not lease_text and not OFF and C.quick and valid == 1 then
    local reply = quick_admit(holder, key, cost, at, length, deadline, since, process)
    if reply then return reply end
  end
  open_fetched()
  if args.words or H[13] then breaker.heed(breaker.root_key(target)) end
  read_lease(key, holder, lease_text)
  if place_raw ~= nil then read_place(holder, place_raw) end

  freed = {}
  local purging = purge(freed)
  local lease = leases[key]
  if lease then
    if lease.ends <= t then
      lapse(lease, freed)
    elseif ask == lease.ask then
      return finish(permit(lease, 0, {[0] = 0, 0}, {}, lease.parts))
    elseif ask < lease.ask then
      return finish({2, 0, -1, 1, 0, 0, {}})
    else
      end_call(lease, 0)
      give_back(lease, freed)
    end
  end
  if purging then return finish({1, 0, -1, t + SOON - offset, 0, t - offset, {}, 0}) end
  if valid ~= 1 then return refuse(holder, -1, 3, 0, 0) end
  if deadline and deadline + offset <= t then return refuse(holder, -1, 2, 0, 0) end
  local found = resolve()
  local states, rules, needs, capacity = prepare(found, cost)
  if not states then return refuse(holder, rules, 0, needs, capacity) end

  local place = place_of(holder)
  local call = {
    holder = holder, ask = ask, cost = cost, level = at, length = length, deadline = deadline, wants = wants == 1,
    process = process, parts = target, arrived = t,
  }
  if since and since + offset <= t and t - since - offset <= C.max_wait then call.arrived = since + offset end
  if place then call.arrived, call.level = place.arrived, place.level end
  local ahead = {}
  for s = 1, #C.scopes do
    local sc = found[s]
    ahead[s] = NOBODY
    if sc and sc.count > 0 then
      local spot = place and place.stands[s]
      if spot and spot[1] == sc.key then
        ahead[s] = ahead_of(sc, place, spot)
      else
        ahead[s] = ahead_of_new(sc, call.level, place and place.seq or nil, call.arrived, target[2])
      end
    end
  end
  local refused, blamed, because, retry_at
  for i, gate in ipairs(C.gates) do
    if states[i] and not is_off(gate) then
      local sc, s, kind = found[gate.s], gate.s, gate.kind
      local at, why
      if sc.cool > t and gate.rate then
        at, why = sc.cool, {2}
      else
        at, why = kind.check(states[i], rules[i], sc, ahead[s], call, gate)
      end
      if at then
        if not blamed or at > retry_at then blamed, because, retry_at = i, why, at end
        refused = refused or {}
        refused[s] = max(refused[s] or 0, at)
      end
    end
  end
  if not blamed then return commit(found, states, rules, place, call) end
  return keep_place(found, states, place, call, ahead, refused, blamed, because, retry_at)
end, true)
