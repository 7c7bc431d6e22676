-- What operators say of breakers for all keys. The partition keeps (H[13]), by the number of the gate, until when an order stands, by the
-- clock of those who call, and by the same number below zero when the last word was said that was carried out here. Every call has
-- what its process has heard, so that each partition takes the newest word, whoever was to tell it: of two words the later holds.

-- The scope keys that have state, at most so many; only those of scope `only` if it is given. `root`: the key of scopes that have one.
function breaker.known_scopes(root, most, only)
  local found = {}
  for s, rule in ipairs(C.scopes) do
    if rule.root and H[12][rule.number] and (not only or s == only) then found[#found + 1] = scope(s, root) end
  end
  for _, name in ipairs(command('ZRANGE', P .. ':k', 0, most - 1)) do
    local colon = string.find(name, ':', 1, true)
    for s, rule in ipairs(C.scopes) do
      if not rule.root and rule.id == sub(name, 1, colon - 1) and (not only or s == only) then
        local raw = command('GET', P .. ':s:' .. name)
        if raw then
          found[#found + 1] = scope(s, sub(name, colon + 1), raw)
        else
          command('ZREM', P .. ':k', name)
        end
      end
    end
  end
  return found
end

-- A breaker is open for all keys until then, also for those that come; or (over, or 0) not any more. `asked`: an operator asks for it
-- now, so 0 closes it whatever has opened it; else it is closed only where that was an order. How many keys have changed.
function breaker.carry_out(gate, till, at, root, asked)
  local orders = H[13] or {}
  local ordered, stands = (orders[gate.id] or 0) + offset, till + offset > t
  orders[gate.id], orders[-gate.id] = stands and till or nil, at
  H[13] = orders
  local one = #C.scopes[gate.s].parts == 0
  local found = one and {scope(gate.s, '')} or breaker.known_scopes(root, 0, gate.s)
  for _, sc in ipairs(found) do
    sc.dirty = true
    local g, r = gate_state(sc, gate), settings(gate, sc.key)
    -- A trip is one also where this clock is ahead of its end.
    if stands or (asked and till > 0) then
      if (asked and one) or not breaker_rests(g, r) then breaker_open(g, till + offset) end
    elseif asked or (g[1] == OPEN and (g[2] == ordered or g[2] > t + r.open)) then
      breaker_turn(g, CLOSED, 0)
    end
  end
  return #found
end

function breaker.was_told(gate, at) return H[13] and H[13][-gate.id] and H[13][-gate.id] >= at end

-- The key of the scopes that have one key here.
function breaker.root_key(parts)
  for _, rule in ipairs(C.scopes) do
    if rule.root then return key_of(rule, parts, true) end
  end
  return ''
end

-- Carries out what the caller has heard and the partition was not told, and forgets what is over.
function breaker.heed(root)
  if not args.words and not H[13] then return end
  for _, word in ipairs(args.words or NOTHING) do
    local gate = C.gates[word[1]]
    if word[3] > 0 and gate.k == 'breaker' and not breaker.was_told(gate, word[3]) then breaker.carry_out(gate, word[2], word[3], root, false) end
  end
  local kept = {}
  for id, at in pairs(H[13] or NOTHING) do
    if (id > 0 and at + offset > t) or (id < 0 and (args.words or t - at < FORGET)) then kept[id] = at end
  end
  H[13] = next(kept) and kept or nil
end
