-- Clears away what has lapsed, a bounded part of it. Reply: {gone, whether more is due, woken}
operation('expire', function()
  open(command('GET', P))
  local touched = {}
  local more, gone = purge(touched)
  local woken = wake(touched, WOKEN)
  save_places()
  save()
  return {gone, more and 1 or 0, woken}
end)
