-- The usual admission and the usual settlement, on the numbers as they are stored: nobody waits, nothing is due, every key is there,
-- every gate passes in the plainest way. Both return nil where anything else is the case, before anything is written, and the
-- rules in full decide. They are those rules for this case: a third of the work, and nothing that is not in them.
--
-- Making tables is what costs: one list per key here, some fifty otherwise.

-- The partition's numbers, if its clock goes on, nothing is due, no order stands and its expiry is far away.
local function quick_open(raw)
  local all = numbers(raw)
  offset = all[2]
  t = given_time() + offset
  if t < all[1] or all[HEADER] ~= 0 or is_late(all[11]) then return nil end
  if (all[5] ~= 0 and all[5] <= t) or (all[6] ~= 0 and all[6] <= t) then return nil end
  all[1] = t
  return all
end

-- Where the record of a scope that has one key stands in the partition's numbers.
local function quick_root(all, rule)
  local at = HEADER
  while at < #all do
    if all[at + 1] == rule.number then return at + 2 end
    at = at + 2 + all[at + 2]
  end
  return nil
end

-- The numbers of a scope key and where its record begins in them, if there is one, in whose line nobody stands.
local function quick_scope(partition, s)
  local rule = C.scopes[s]
  local all, base = partition, nil
  if rule.root then
    base = quick_root(all, rule)
  elseif target_raws[s] then
    all, base = numbers(target_raws[s]), 0
    if is_late(all[6]) then return nil end
  end
  if not base or all[base + 3] > 0 or all[base + 2] > t then return nil end
  return all, base
end

-- What one gate leaves for others after this call, with the call spent; nil if it does not pass in the plainest way.
local QUICK = {}

function QUICK.smooth(g, b, r, _, cost)
  local n, full = units(r, cost), r.burst * r.every
  local now, elapsed = g[b + 1], t - g[b + 2]
  if now > 0 then
    if elapsed >= cdiv(now, r.rate) then now = 0 else now = now - elapsed * r.rate end
  end
  now = now + n * r.every
  if now > full then return nil end
  g[b + 1], g[b + 2] = now, t
  return floor((full - now) / (max(n, 1) * r.every))
end

function QUICK.level(g, b, r, _, cost, mark)
  if g[b + 12] ~= 0 then return nil end
  level_advance(g, b, r)
  local need = cost * NANO
  if need > g[b + 1] or need > g[b + 7] or g[b + 4] + need > PRODUCT then return nil end
  local left = g[b + 1] - need
  g[b + 1], g[b + 14], g[b + 4], g[b + 3] = left, g[b + 14] - need, g[b + 4] + need, t
  g[b + 16] = (g[b + 16] + cost) % WRAP
  mark[1], mark[2], mark[3] = g[b + 11], g[b + 16], t
  return floor(left / (max(cost, 1) * NANO))
end

function QUICK.pool(g, b, r, _, _, _, at)
  if r.reserved or g[b + 2] ~= 0 or g[b + 1] >= r.limit then return nil end
  g[b + 1], g[b + 5 + at] = g[b + 1] + 1, g[b + 5 + at] + 1
  return r.limit - g[b + 1]
end

function QUICK.breaker(g, b, _, _, _, _, _, process)
  if g[b + 1] ~= CLOSED then return nil end
  for i = b + 6, b + g[b], 7 do
    if g[i] == process and t < g[i + 6] then return nil end
  end
  return U32
end

-- The ring of a window is written later, when all gates have passed.
local function quick_window(g, b, r, n, later, sc, gate)
  if g[b + 4] > 0 and g[b + 1] ~= r.grain then return nil end
  window_advance(g, b, r, sc, gate)
  if g[b + 2] + n > r.max then return nil end
  later[#later + 1] = {g, b, r, sc, gate, n}
  return floor((r.max - g[b + 2] - n) / max(n, 1))
end

function QUICK.window(g, b, r, _, cost, _, _, _, later, sc, gate)
  return quick_window(g, b, r, units(r, cost), later, sc, gate)
end

function QUICK.quota(g, b, r, live, cost, _, _, _, later, sc, gate)
  if g[b + 1] ~= 0 or (g[b + 4] == 1) ~= (r.window and true or false) then return nil end
  local left = U32
  if r.slots then
    if live >= r.slots then return nil end
    left = r.slots - live - 1
  end
  if not r.window then return left end
  local window_left = quick_window(g, b + 4, r.window, cost, later, sc, gate)
  return window_left and min(left, window_left)
end

-- Numbers of the scope keys of a call, as text, and the partition's last, where they came from.
local function quick_save(lists, partition)
  for s, all in pairs(lists) do command('SET', scope_id(C.scopes[s], target_names[s]), packed(all), 'KEEPTTL') end
  command('SET', P, packed(partition), 'KEEPTTL')
end

-- What a lease of this call says behind its numbers, and how many gates it names, if all of them hold something for it.
local function quick_tail()
  local held, counted, n = '', ',', 0
  for s = 1, #C.scopes do
    if not target_names[s] then
      for other, rule in ipairs(C.scopes) do
        if target_names[other] then
          counted, n = counted .. rule.id .. ',', n + #rule.list
          for _, gate in ipairs(rule.list) do held = held .. gate.packed end
        end
      end
      return held .. counted .. '|' .. target_text, n
    end
  end
  return C.all_packed .. C.all_counted .. '|' .. target_text, #C.gates
end

local function quick_admit(holder, ask, cost, at, length, deadline, process)
  local partition = quick_open(target_raw)
  if not partition or (deadline and deadline + offset <= t) then return nil end
  -- Whoever has a place has it in a line; most partitions have none.
  if partition[9] > 0 and command('EXISTS', P .. ':p:' .. holder) == 1 then return nil end
  local remaining, mark, lists, later = U32, {0, 0, 0}, {}, {}
  for s = 1, #C.scopes do
    local key = target_names[s]
    if key then
      local all, base = quick_scope(partition, s)
      if not all then return nil end
      local live, place, gates = all[base + 1], base + RECORD, C.scopes[s].list
      for i = 1, #gates do
        local gate = gates[i]
        if all[place + 1] ~= gate.id then return nil end
        local pass = QUICK[gate.k]
        local sc = gate.windowed and {rule = C.scopes[s], key = key}
        local r = gate.o and gate.o[key] or gate.r
        local left = pass(all, place + 2, r, live, cost, mark, at, process, later, sc, gate)
        if not left then return nil end
        if left < remaining then remaining = left end
        place = place + 2 + all[place + 2]
      end
      all[base + 1] = live + 1
      if all ~= partition then lists[s] = all end
    end
  end
  for _, w in ipairs(later) do window_spend(w[1], w[2], w[3], w[4], w[5], w[6]) end
  local tail, gates = quick_tail()
  local fence, ends, use_by = max(partition[3] + 1, t), t + length, t + C.use_by
  partition[3], partition[7] = fence, partition[7] + 1
  if partition[5] == 0 or ends < partition[5] then partition[5] = ends end
  put(live_key(holder), struct.pack(
    LEASE, fence, ask, at, process, cost, length, t, use_by, ends, mark[1], mark[2], mark[3], 0, gates, 0
  ) .. tail)
  command('ZADD', P .. ':e', ends, member(fence, 'l' .. holder))
  if partition[7] == 1 then command('EXPIRE', P .. ':e', TTL) end
  quick_save(lists, partition)
  return {0, 0, fence, cost, t - offset, use_by - offset, ends - offset, remaining, {}, {}}
end

-- What an answer that is good (or none: `voted` is false) changes; nil if it is more than that.
local SETTLED = {}

function SETTLED.level(g, b, r, lease, actual, seen, changes, number)
  level_advance(g, b, r)
  local foreign = level_settle(g, b, lease.mark, lease.cost, actual, false, seen)
  if foreign > 0 then changes[#changes + 1] = {2, number - 1, foreign} end
  return true
end

function SETTLED.pool(g, b, r, lease)
  if r.ceiling then return nil end
  g[b + 1], g[b + 5 + lease.level] = max(g[b + 1] - 1, 0), max(g[b + 5 + lease.level] - 1, 0)
  return true
end

function SETTLED.breaker(g, b, r, lease)
  if g[b + 1] ~= CLOSED then return nil end
  if not lease.voted then return true end
  for i = b + 6, b + g[b], 7 do
    if g[i] == lease.process then
      if g[i + 1] ~= floor(t / r.half) then return nil end
      g[i + 3] = g[i + 3] + 1
      return true
    end
  end
  return nil
end

local function quick_settle(holder, fence, raw, voted, actual, seen)
  local partition = quick_open(target_raw)
  if not partition then return nil end
  local own, _, at, process, cost, _, _, _, ends, answered, admitted, sent, shut = struct.unpack(LEASE, raw)
  if own ~= fence or ends <= t or shut == 1 then return nil end
  if sub(raw, LEASE_BYTES + 1) ~= quick_tail() then return nil end
  local lease = {process = process, level = at, cost = cost, mark = {answered, admitted, sent}, voted = voted}
  local lists, changes = {}, {}
  for s = 1, #C.scopes do
    local key = target_names[s]
    if key then
      local all, base = quick_scope(partition, s)
      if not all then return nil end
      local place, gates = base + RECORD, C.scopes[s].list
      for i = 1, #gates do
        local gate = gates[i]
        if all[place + 1] ~= gate.id then return nil end
        local settled, r = SETTLED[gate.k], gate.o and gate.o[key] or gate.r
        if settled and not settled(all, place + 2, r, lease, actual, seen, changes, gate.i) then return nil end
        place = place + 2 + all[place + 2]
      end
      all[base + 1] = max(all[base + 1] - 1, 0)
      if all ~= partition then lists[s] = all end
    end
  end
  partition[7] = partition[7] - 1
  if partition[7] == 0 then partition[5] = 0 end
  command('DEL', live_key(holder))
  command('ZREM', P .. ':e', member(fence, 'l' .. holder))
  quick_save(lists, partition)
  return {0, 0, {}, changes}
end
