-- Returns the orders to erase identities that are newer than a moment. Follows now.lua. `Orders.since` in
-- merge/orders.py is the definition. Mostly there is no such order, and only one field is read.
-- KEYS 1 orders  ARGV 1 the moment in microseconds 2 the time in microseconds (tests only)
local hub_us, since = now_us(ARGV[2]), tonumber(ARGV[1])
local reply = { string.format('%.0f', hub_us) }
if tonumber(redis.call('HGET', KEYS[1], '#') or 0) <= since then return reply end
local found = redis.call('HGETALL', KEYS[1])
for position = 1, #found, 2 do
  if found[position] ~= '#' and tonumber(found[position + 1]) > since then
    reply[#reply + 1], reply[#reply + 2] = found[position], found[position + 1]
  end
end
return reply
