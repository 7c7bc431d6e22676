-- The usual admission and the usual settlement, on the numbers as they are stored: nothing is due, every key is there, the caller
-- has no place, every gate passes in the plainest way. Both return nil where anything else is the case, before anything is written,
-- and the rules in full decide. They are those rules for this case: a third of the work, and nothing that is not in them.
--
-- Making tables is what costs: one list per key here, some fifty otherwise.

local quick_admit, quick_settle
local place_raw -- the caller's place as it was read; false: it has none; nil: nobody has looked
local QUICK, SETTLED = {}, {} -- by kind of gate

-- A scope of its own: a function has 200 locals at most.
do
-- Whether no order stands, and the partition was told of all that the caller has heard of orders.
local function quick_heed(all)
  local last = HEADER + 2 * all[HEADER]
  for at = HEADER + 1, last, 2 do
    if all[at] > 0 then return false end
  end
  for _, word in ipairs(args.words or NOTHING) do
    local id, told = -C.gates[word[1]].id, false
    for at = HEADER + 1, last, 2 do
      if all[at] == id then told = all[at + 1] >= word[3] end
    end
    if not told or word[2] + offset > t then return false end
  end
  return true
end

-- The partition's numbers, if its clock goes on, nothing is due, no order stands and its expiry is far away.
local function quick_open(raw)
  local all = numbers(raw)
  offset = all[2]
  t = given_time() + offset
  if t < all[1] or is_late(all[11]) then return nil end
  if (args.words or all[HEADER] ~= 0) and not quick_heed(all) then return nil end
  if (all[5] ~= 0 and all[5] <= t) or (all[6] ~= 0 and all[6] <= t) then return nil end
  all[1] = t
  return all
end

-- Where the record of a scope that has one key stands in the partition's numbers.
local function quick_root(all, rule)
  local at = HEADER + 2 * all[HEADER]
  while at < #all do
    if all[at + 1] == rule.number then return at + 2 end
    at = at + 2 + all[at + 2]
  end
  return nil
end

-- The numbers of a scope key and where its record begins in them, if there is one and nobody was told to stay away.
local function quick_scope(partition, s, rule)
  local all, base = partition, nil
  if rule.root then
    base = quick_root(all, rule)
  elseif target_raws[s] then
    all, base = numbers(target_raws[s]), 0
    if is_late(all[6]) then return nil end
  end
  if not base or all[base + 2] > t then return nil end
  return all, base
end

-- Of those who stand before the call in the line of the scope that is looked at: how many, and their cost at most.
local ahead, cost_ahead = 0, 0
-- What the lease takes with it for a reported level; windows that are to be written when all gates have passed.
local answered, admitted, sent, later

-- Looks at a line that is not empty; the call comes last among those of its order.
local function quick_line(all, base, rule, key, order, own)
  ahead = 0
  local line, edge = P .. rule.line .. key, stamp(order)
  for l = 1, all[base + RECORD] do
    if all[base + RECORD + l] > 0 then
      ahead = ahead + command('ZCOUNT', line .. LEVELS[l - 1], '-inf', l <= own + 1 and edge or '(' .. edge)
    end
  end
  cost_ahead = min(all[base + 4], ahead * all[base + 5])
end

-- What one gate leaves for others after this call, with the call spent; nil if it does not pass in the plainest way.

function QUICK.smooth(g, b, r, _, cost)
  local every, n, before = r.every, 1, ahead
  if r.unit == 1 then n, before = cost, cost_ahead end
  -- A product that is too large to be exact is larger than any level.
  local full, now = r.burst * every, g[b + 1] - (t - g[b + 2]) * r.rate
  if now < 0 then now = 0 end
  now = now + n * every
  if now + before * every > full then return nil end
  g[b + 1], g[b + 2] = now, t
  local left = (full - now) / (n > 1 and n * every or every)
  return left - left % 1
end

function QUICK.level(g, b, r, _, cost)
  if g[b + 12] ~= 0 then return nil end
  level_advance(g, b, r)
  local need = cost * NANO
  local all = need + cost_ahead * NANO
  if all > g[b + 1] or need > g[b + 7] or g[b + 4] + all > PRODUCT then return nil end
  local left = g[b + 1] - need
  g[b + 1], g[b + 14], g[b + 4], g[b + 3] = left, g[b + 14] - need, g[b + 4] + need, t
  g[b + 16] = (g[b + 16] + cost) % WRAP
  answered, admitted, sent = g[b + 11], g[b + 16], t
  left = left / (cost > 1 and need or NANO)
  return left - left % 1
end

function QUICK.pool(g, b, r, _, _, at)
  if r.reserved or g[b + 2] ~= 0 or g[b + 1] + ahead >= r.limit or g[b] < 5 + at then return nil end
  g[b + 1], g[b + 5 + at] = g[b + 1] + 1, g[b + 5 + at] + 1
  return r.limit - g[b + 1]
end

function QUICK.breaker(g, b, _, _, _, _, process)
  if g[b + 1] ~= CLOSED then return nil end
  for i = b + 6, b + g[b], 7 do
    if g[i] == process and t < g[i + 6] then return nil end
  end
  return U32
end

-- The ring of a window is written later, when all gates have passed.
local function quick_window(g, b, r, n, before, gate, rule, key)
  if g[b + 4] > 0 and g[b + 1] ~= r.grain then return nil end
  local sc = {rule = rule, key = key}
  window_advance(g, b, r, sc, gate)
  if g[b + 2] + n + before > r.max then return nil end
  later = later or {}
  later[#later + 1] = {g, b, r, sc, gate, n}
  return floor((r.max - g[b + 2] - n) / max(n, 1))
end

function QUICK.window(g, b, r, _, cost, _, _, gate, rule, key)
  return quick_window(g, b, r, units(r, cost), r.unit == 1 and cost_ahead or ahead, gate, rule, key)
end

function QUICK.quota(g, b, r, live, cost, _, _, gate, rule, key)
  if g[b + 1] ~= 0 or (g[b + 4] == 1) ~= (r.window and true or false) then return nil end
  local left = U32
  if r.slots then
    if live + ahead >= r.slots then return nil end
    left = r.slots - live - 1
  end
  if not r.window then return left end
  local window_left = quick_window(g, b + 4, r.window, cost, cost_ahead, gate, rule, key)
  return window_left and min(left, window_left)
end

-- Numbers of the scope keys of a call, as text, and the partition's last, where they came from.
local function quick_save(lists, partition)
  if lists then
    local ends = target_known.ends
    for s, all in pairs(lists) do command('SETRANGE', P .. ends[s], '0', packed(all)) end
  end
  -- It is as long as before.
  command('SETRANGE', P, '0', packed(partition))
end

-- Free places of the tightest pool of a scope key; nil without one.
local function quick_free(all, base, rule, key)
  if not rule.pool then return nil end
  local least, place = nil, base + RECORD + all[base + RECORD]
  for i = 1, #rule.list do
    local gate = rule.list[i]
    if gate.k == 'pool' then
      local r = gate.o and gate.o[key] or gate.r
      local n = max(r.limit - all[place + 3], 0)
      if not least or n < least then least = n end
    end
    place = place + 2 + all[place + 2]
  end
  return least
end

function quick_admit(holder, own_key, cost, at, length, deadline, since, process)
  local partition = quick_open(target_raw)
  if not partition or (deadline and deadline + offset <= t) then return nil end
  -- Whoever has a place has it in a line; most partitions have none.
  if partition[9] > 0 then
    place_raw = command('GET', P .. ':p:' .. holder)
    if place_raw then return nil end
  end
  answered, admitted, sent, later = 0, 0, 0, nil
  local remaining, shared, own, lists, scope_rules = U32, U32, U32, nil, C.scopes
  for s = 1, #scope_rules do
    local key, rule = target_names[s], scope_rules[s]
    if key then
      local all, base = quick_scope(partition, s, rule)
      if not all then return nil end
      ahead, cost_ahead = 0, 0
      if all[base + 3] > 0 then
        if rule.fair or quick_free(all, base, rule, key) == 0 then return nil end
        local arrived = t
        if since and since + offset <= t and t - since - offset <= C.max_wait then arrived = since + offset end
        quick_line(all, base, rule, key, arrived + at * C.step, at)
      end
      local live, place, gates, least = all[base + 1], base + RECORD + all[base + RECORD], rule.list, U32
      for i = 1, #gates do
        local gate = gates[i]
        if all[place + 1] ~= gate.id then return nil end
        local left = gate.quick(all, place + 2, gate.o and gate.o[key] or gate.r, live, cost, at, process, gate, rule, key)
        if not left then return nil end
        if left < least then least = left end
        place = place + 2 + all[place + 2]
      end
      if least < remaining then remaining = least end
      -- What is left after those that wait.
      if least < U32 and rule.whose < 2 then
        least = least - all[base + 3]
        if least < 0 then least = 0 end
        if rule.whose == 0 then
          if least < shared then shared = least end
        elseif least < own then
          own = least
        end
      end
      all[base + 1] = live + 1
      if all ~= partition then
        lists = lists or {}
        lists[s] = all
      end
    end
  end
  if later then
    for _, w in ipairs(later) do window_spend(w[1], w[2], w[3], w[4], w[5], w[6]) end
  end
  local fence, ends, use_by = partition[3] + 1, t + length, t + C.use_by
  if fence < t then fence = t end
  partition[3], partition[7] = fence, partition[7] + 1
  if partition[5] == 0 or ends < partition[5] then partition[5] = ends end
  -- The lease, whose beginning is the beginning of the answer.
  local lease = struct.pack('>dddddddd', fence, t, use_by, ends, remaining, answered, admitted, sent)
  command('SETEX', own_key, C.ttl_text, lease .. args[4] .. target_known.tail)
  command('ZADD', P .. ':e', stamp(ends), sub(lease, 1, 8) .. 'l' .. holder)
  if partition[7] == 1 then command('EXPIRE', P .. ':e', C.ttl_text) end
  quick_save(lists, partition)
  if offset == 0 then return lease .. struct.pack('>dd', shared, own) end
  return struct.pack('>dddddddddd', fence, t - offset, use_by - offset, ends - offset, remaining, 0, 0, 0, shared, own)
end

-- What an answer that is good (or none: `voted` is false) changes, for the numbers of its lease; nil if it is more than that.
local mark = {0, 0, 0}
local free_now -- places of the tightest pool of the scope key that is looked at; nil: it has none, as far as was seen

function SETTLED.level(g, b, r, cost, _, _, _, actual, seen, changes, number)
  level_advance(g, b, r)
  local foreign = level_settle(g, b, mark, cost, actual, false, seen)
  if foreign > 0 then changes[#changes + 1] = {2, number - 1, foreign} end
  return true
end

function SETTLED.pool(g, b, r, _, at)
  if r.ceiling or g[b] < 5 + at then return nil end
  g[b + 1], g[b + 5 + at] = max(g[b + 1] - 1, 0), max(g[b + 5 + at] - 1, 0)
  local n = max(r.limit - g[b + 1], 0)
  if not free_now or n < free_now then free_now = n end
  return true
end

function SETTLED.breaker(g, b, r, _, _, process, voted)
  if g[b + 1] ~= CLOSED then return nil end
  if not voted then return true end
  local half = t / r.half
  half = half - half % 1
  for i = b + 6, b + g[b], 7 do
    if g[i] == process then
      if g[i + 1] ~= half then return nil end
      g[i + 3] = g[i + 3] + 1
      return true
    end
  end
  return nil
end

-- The first n of a main line that is not empty, by their names there.
local function quick_first(all, base, rule, key, n)
  local only
  for l = 1, all[base + RECORD] do
    if all[base + RECORD + l] > 0 then
      if only then
        local levels = {unpack(all, base + RECORD + 1, base + RECORD + all[base + RECORD])}
        return first({rule = rule, key = key, levels = levels}, n)
      end
      only = l
    end
  end
  -- Everybody may stand in side lines.
  return only and command('ZRANGE', P .. rule.line .. key .. LEVELS[only - 1], '0', LAST[n] or text(n - 1)) or NOTHING
end

-- Whether the first of a line that is not empty is called, as in `wake`.
local function quick_hopes(all, base, rule, key)
  local name = quick_first(all, base, rule, key, 1)[1]
  local raw = name and command('GET', P .. ':p:' .. (waiter_in(name)))
  if not raw then return false end
  local place = cmsgpack.unpack(raw)
  local kind = rule.kinds[place[7]] or (rule.event and 'event') or (rule.level and 'elsewhere')
  if level.events[kind] then return true end
  if kind ~= 'level' and kind ~= 'elsewhere' then return false end
  local head, sooner, at = {cost = place[3]}, level.sooner(place[5]), base + RECORD + all[base + RECORD]
  if all[base + 2] > t and all[base + 2] >= sooner then return false end
  for i = 1, #rule.list do
    local last = at + 2 + all[at + 2]
    if rule.list[i].k == 'level' and not level.hopes({unpack(all, at + 3, last)}, head, sooner) then return false end
    at = last
  end
  return true
end

-- What `call_up` makes of the first of a line: their holders as one text, and whom to tell. The same few stand there for many
-- settlements, and to take their names apart each time was a third of what a line costs a call. It follows from the names and from who
-- asks, and from nothing else.
local MAX_CALLED = 1000
local called, number_of_called = {}, 0 -- by who asks, and by the first name
local function call_up_again(names)
  local head, own = names[1] or '', args[2]
  local mine = called[own]
  local known = mine and mine[head]
  if known then
    local before = known.names
    if names[2] == before[2] and names[3] == before[3] and names[4] == before[4] then return known end
  else
    if number_of_called >= MAX_CALLED then called, number_of_called, mine = {}, 0, nil end
    number_of_called = number_of_called + 1
  end
  if not mine then
    mine = {}
    called[own] = mine
  end
  local woken, told = {}, {}
  call_up(woken, told, nil, names, WOKEN)
  known = {names = names, woken = woken, text = table.concat(woken, ' '), told = told}
  mine[head] = known
  return known
end

function quick_settle(holder, own_key, fence, raw, voted, actual, seen)
  local partition = quick_open(target_raw)
  if not partition then return nil end
  local own, at, process, cost, ends, shut, _
  own, _, _, ends, _, mark[1], mark[2], mark[3], _, cost, at, _, _, _, _, process, _, shut = struct.unpack(LEASE, raw)
  if own ~= fence or ends <= t or shut == 1 then return nil end
  if sub(raw, LEASE_BYTES - 2) ~= target_known.tail then return nil end
  local lists, changes, waited, rules, scope_rules = nil, {}, nil, nil, C.scopes
  for s = 1, #scope_rules do
    local key, rule = target_names[s], scope_rules[s]
    if key then
      local all, base = quick_scope(partition, s, rule)
      if not all then return nil end
      local place, gates = base + RECORD + all[base + RECORD], rule.list
      free_now = nil
      for i = 1, #gates do
        local gate = gates[i]
        if all[place + 1] ~= gate.id then return nil end
        local settled = gate.settled
        if settled and not settled(
          all, place + 2, gate.o and gate.o[key] or gate.r, cost, at, process, voted, actual, seen, changes, gate.i
        ) then
          return nil
        end
        place = place + 2 + all[place + 2]
      end
      all[base + 1] = max(all[base + 1] - 1, 0)
      if all ~= partition then
        lists = lists or {}
        lists[s] = all
      end
      if all[base + 3] > 0 then
        if OFF then return nil end
        local n = free_now or (quick_hopes(all, base, rule, key) and 1 or 0)
        if n > 0 then
          waited, rules = waited or {}, rules or {}
          waited[#waited + 1] = quick_first(all, base, rule, key, n < WOKEN and n or WOKEN)
          rules[#waited] = rule
        end
      end
    end
  end
  partition[7] = partition[7] - 1
  if partition[7] == 0 then partition[5] = 0 end
  command('DEL', own_key)
  command('ZREM', P .. ':e', sub(raw, 1, 8) .. 'l' .. holder)
  if not waited then
    quick_save(lists, partition)
    if #changes == 0 then return 0 end
    return {0, 0, NOTHING, changes}
  end
  if not waited[2] and #changes == 0 then
    local call, due = call_up_again(waited[1]), {}
    pool.wait_here(due, rules[1], call.woken, 1, true)
    partition[6] = pool.expect(due, partition[6])
    quick_save(lists, partition)
    tell(call.told)
    return call.text
  end
  local woken, told, seen, due = {}, {}, waited[2] and {}, {}
  for i = 1, #waited do
    local from = #woken + 1
    call_up(woken, told, seen, waited[i], WOKEN)
    pool.wait_here(due, rules[i], woken, from, true)
  end
  partition[6] = pool.expect(due, partition[6])
  quick_save(lists, partition)
  tell(told)
  if #changes == 0 then return table.concat(woken, ' ') end
  return {0, 0, woken, changes}
end
end
