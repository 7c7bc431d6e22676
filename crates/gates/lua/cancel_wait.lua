-- Gives up a place in line. ARGV from 4: holder. Reply: {gone, whether more is due, woken}
local holder = ARGV[4]
local raws = redis.call('MGET', P, P .. ':p:' .. holder)
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
