-- Makes a set of gates known under a name, until the server ends or reads the library again. args: name, the set as JSON. A set
-- that is not known is answered with an error that begins with TGSET; whoever hears it defines the set and asks again.
local function define(_, arguments)
  local name, set = arguments[1], cjson.decode(arguments[2])
  set.pools, set.all_ids, set.targets, set.ttl_text = {}, {}, {}, string.format('%.0f', set.ttl)
  local packed, counted, reported = {}, {}, 0
  for _, rule in ipairs(set.scopes) do
    rule.pools, rule.list, rule.gates, rule.prefix, rule.mark = {}, {}, 0, ':s:' .. rule.id .. ':', ',' .. rule.id .. ','
    rule.line, rule.kinds = ':w:' .. rule.id .. ':', {}
    -- Whoever stands in its line waits for a gate of it.
    rule.alone = #rule.narrower == #set.scopes - 1
    counted[#counted + 1] = rule.id .. ','
  end
  for i, gate in ipairs(set.gates) do
    local rule = set.scopes[gate.s]
    gate.i, gate.kind, gate.at, gate.id_text = i, KINDS[gate.k], 8 + 2 * rule.gates, string.format('%.0f', gate.id)
    gate.rate = gate.k == 'smooth' or gate.k == 'window' or gate.k == 'level'
    rule.gates, set.all_ids[gate.id], packed[i] = rule.gates + 1, true, struct.pack('<d', gate.id)
    gate.packed, rule.list[rule.gates], rule.kinds[gate.name] = packed[i], gate, gate.k
    gate.quick, gate.settled = QUICK[gate.k], SETTLED[gate.k]
    if gate.k == 'level' then reported = reported + 1 end
    rule.event = rule.event or level.events[gate.k]
    if gate.k == 'pool' then
      set.pools[#set.pools + 1] = gate
      rule.pools[#rule.pools + 1] = gate
    end
  end
  set.all_packed, set.all_counted = table.concat(packed), ',' .. table.concat(counted)
  -- A lease has one mark, so two buckets take the way in full.
  set.quick = reported <= 1
  -- Those in use come back by themselves.
  if number_of_sets >= MAX_SETS then sets, number_of_sets, number_of_targets = {}, 0, 0 end
  if not sets[name] then number_of_sets = number_of_sets + 1 end
  sets[name] = set
  return 1
end

redis.register_function({function_name = LIBRARY .. 'define', callback = define, flags = {'no-writes'}})
