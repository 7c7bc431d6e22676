-- Gives up a place in line. args from 3: holder. Reply: {gone, whether more is due, woken}
operation('cancel_wait', function()
  local holder = args[3]
  local raws = command('MGET', P, P .. ':p:' .. holder)
  open(raws[1])
  read_place(holder, raws[2])
  local touched = {}
  local more = purge(touched)
  local place = place_of(holder)
  if place then remove_place(place, false, touched) end
  local woken = wake(touched, WOKEN)
  save_places()
  save()
  return {place and 1 or 0, more and 1 or 0, woken}
end)
