-- What an operator sees and does in one partition. args[3] says what, see each branch; args[4] is the key of scopes that have one.
-- Looking changes nothing but the clock.
local function lease_view(lease)
  return {
    lease.parts, lease.holder, lease.fence, lease.admitted_at - offset, lease.ends - offset, lease.cost, lease.shut,
  }
end

-- Leases in the order of admission, at most so many: {parts, holder, fence, admitted_at, expires_at, cost, shut} each.
local function all_leases()
  local names = command('ZRANGE', P .. ':e', 0, -1)
  table.sort(names)
  return names
end

local function lease_named(name)
  local holder, key = lease_in(name)
  return lease_of(key, holder)
end

-- Reads the partition without letting its clock go on.
local function peek(raw)
  H = partition_of(raw)
  t, offset = H[1], H[2]
end

local function keep()
  save_places()
  save()
end

operation('operate', function()
  local what, raw = args[3], command('GET', P)
  if what == 'holders' then
    -- args[5] at most. The times as they were at the last operation.
    if not raw then return {} end
    peek(raw)
    local views = {}
    for _, name in ipairs(all_leases()) do
      if #views >= tonumber(args[5]) then break end
      local lease = lease_named(name)
      if lease then views[#views + 1] = lease_view(lease) end
    end
    return views
  elseif what == 'waiters' then
    -- args[5] at most. {parts, holder, gate, arrived, retry_at, expires_at, priority, cost, ahead} each, in the order of arrival.
    if not raw then return {} end
    peek(raw)
    local found, views = {}, {}
    local all = command('ZRANGE', P .. ':q', 0, -1, 'WITHSCORES')
    for i = 1, #all, 2 do
      local place = place_of(all[i])
      if place then
        place.ends = tonumber(all[i + 1])
        found[#found + 1] = place
      end
    end
    table.sort(found, function(a, b) return a.seq < b.seq end)
    for i = 1, min(#found, tonumber(args[5])) do
      local p, ahead = found[i], 0
      for s, spot in pairs(p.stands) do ahead = max(ahead, ahead_of(scope(s, spot[1]), p, spot).count) end
      views[i] = {
        p.parts, p.holder, p.gate, p.arrived - offset, p.retry_at - offset, p.ends - offset, p.level + 1, p.cost, ahead,
      }
    end
    return views
  elseif what == 'usage' then
    -- {keys, leases, quarantined, places}
    if not raw then return {0, 0, 0, 0} end
    peek(raw)
    local keys = command('ZCARD', P .. ':k')
    for _ in pairs(H[12]) do keys = keys + 1 end
    return {keys, H[7], H[8], H[9]}
  elseif what == 'clear' then
    -- Forgets everything except the clock and the fence. Sorted sets and hashes of lines are found by those who stand in them.
    if not raw then return {0, 0, 0, 0} end
    peek(raw)
    local gone = {P .. ':e', P .. ':q', P .. ':k'}
    for _, name in ipairs(all_leases()) do lease_named(name) end
    for _, holder in ipairs(command('ZRANGE', P .. ':q', 0, -1)) do place_of(holder) end
    local found = breaker.known_scopes(args[4], 0)
    for _, sc in ipairs(found) do
      gone[#gone + 1] = sc.id
      gone[#gone + 1] = groups_key(sc)
      for l = 1, #sc.levels do gone[#gone + 1] = main_key(sc, l - 1) end
      for _, gate in ipairs(C.gates) do
        if gate.s == sc.s and (gate.k == 'window' or gate.k == 'quota') then gone[#gone + 1] = ring_of(sc, gate) end
      end
      for _, place in pairs(places) do
        if place then gone[#gone + 1] = side_key(sc, place.level, place.parts[2]) end
      end
    end
    for key, lease in pairs(leases) do
      if lease then gone[#gone + 1] = key end
    end
    for holder, place in pairs(places) do
      if place then gone[#gone + 1] = P .. ':p:' .. holder end
    end
    for i = 1, #gone do command('DEL', gone[i]) end
    local counts = {#found, H[7], H[8], H[9]}
    local before = H
    -- As a partition that is made, with what stands for it.
    open(false)
    put(P, partition_text({before[1], before[2], before[3], 0, 0, 0, 0, 0, 0, before[10], 0, {}, H[13]}))
    return counts
  end

  open(raw)
  breaker.heed(args[4])

  if what == 'inspect' then
    -- args[5] keys at most: {key, live, waiting, gate, figures, gate, figures …} each. The clock goes on, gates are let advance.
    local views = {}
    for _, sc in ipairs(breaker.known_scopes(args[4], tonumber(args[5]))) do
      if #views >= tonumber(args[5]) then break end
      sc.dirty = true
      local view = {sc.key, sc.live, sc.count}
      for i, gate in ipairs(C.gates) do
        if gate.s == sc.s then
          local k, g, r = gate.k, gate_state(sc, gate), settings(gate, sc.key)
          if gate.kind.advance then gate.kind.advance(g, r, sc, gate) end
          local figures
          if k == 'smooth' then
            figures = {smooth.remaining(g, r, 1)}
          elseif k == 'window' then
            figures = {g[2], r.max}
          elseif k == 'level' then
            figures = {floor(g[1] / NANO), floor(g[6] / NANO), floor(g[4] / NANO), g[15]}
          elseif k == 'pool' then
            figures = {g[1], pool_limit(g, r)}
          elseif k == 'breaker' then
            local state = 0
            if ordered_open(gate) > t then
              state = 1
            elseif g[1] == OPEN then
              state = t < g[2] and 1 or 2
            elseif g[1] == HALF then
              state = 2
            elseif g[1] == RAMP and t - g[2] < r.ramp then
              state = 3
            end
            figures = {state}
          else
            figures = {sc.live, g[4] == 1 and g[6] or 0, g[1], g[2]}
          end
          view[#view + 1] = i - 1
          view[#view + 1] = figures
        end
      end
      views[#views + 1] = view
    end
    keep()
    return views
  elseif what == 'promote' then
    -- args[5] holder: before all others where it stands, and arrived before all others where it does not. 1 if it waits.
    local place = place_of(args[5])
    if place then
      for s = 1, #C.scopes do
        local spot = place.stands[s]
        local key = spot and spot[1] or key_of(C.scopes[s], place.parts)
        if key then
          local sc = scope(s, key)
          if spot and spot[2] == 0 then
            unstand(place, s, false)
            stand_in_main(sc, place)
          end
          local head
          for l, n in ipairs(sc.levels) do
            if n > 0 then
              local score = tonumber(command('ZRANGE', main_key(sc, l - 1), 0, 0, 'WITHSCORES')[2])
              if score and (not head or score < head) then head = score end
            end
          end
          if head and not spot then
            place.arrived, place.dirty = min(place.arrived, head - 1 - place.level * C.step), true
          elseif head then
            command('ZADD', main_key(sc, place.level), head - 1, waiter(place))
            place.stands[s] = {sc.key, 1, head - 1, place.stands[s][4]}
            place.dirty = true
          end
        end
      end
    end
    keep()
    return place and 1 or 0
  elseif what == 'release' then
    -- args[5] holder, args[6] 1: only look. {leases, woken}
    local views, found, touched = {}, {}, {}
    for _, name in ipairs(all_leases()) do
      if lease_in(name) == args[5] then
        local lease = lease_named(name)
        if lease then
          found[#found + 1] = lease
          views[#views + 1] = lease_view(lease)
        end
      end
    end
    local woken = {}
    if args[6] ~= '1' then
      for _, lease in ipairs(found) do
        if lease.shut == 0 then end_call(lease, false) end
        give_back(lease, touched)
      end
      woken = wake(touched, WOKEN)
    end
    keep()
    return {views, woken}
  end
  -- Orders to breakers; how many have changed. args[5] id of the gate.
  -- 'order': to all keys: args[6] until when it is open (0: reset), args[7] when that was said.
  -- 'breaker': to one key, where no order to all stands: args[6] how long it is open (empty: reset), args[7] the key.
  local changed, lasts = 0, tonumber(args[6])
  for _, gate in ipairs(C.gates) do
    if text(gate.id) == args[5] and gate.k == 'breaker' then
      if what == 'order' then
        local at = tonumber(args[7])
        -- A newer one may have come first.
        if at == 0 or not breaker.was_told(gate, at + 1) then changed = changed + breaker.carry_out(gate, lasts, at, args[4], true) end
      else
        if not lasts and H[13] then H[13][gate.id] = nil end
        local one = #C.scopes[gate.s].parts == 0
        local found = one and {scope(gate.s, '')} or breaker.known_scopes(args[4], 0, gate.s)
        for _, sc in ipairs(found) do
          if one then sc.dirty = true end
          if sc.key == args[7] then
            sc.dirty = true
            local g = gate_state(sc, gate)
            if lasts then breaker_open(g, clock + offset + lasts) else breaker_turn(g, CLOSED, 0) end
            changed = changed + 1
          end
        end
      end
    end
  end
  keep()
  return changed
end)
