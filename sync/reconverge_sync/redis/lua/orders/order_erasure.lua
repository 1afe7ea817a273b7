-- Stores orders to erase identities, each under its mark (a hash of the identity). Follows now.lua. `Orders.give` in
-- merge/orders.py is the definition.
-- KEYS 1 orders: the moment of each by its mark; `#` is the latest moment  ARGV 1 the time in microseconds (tests only)
--   2 for how many microseconds an order is kept 3 how many orders are kept 4... marks
local hub_us, call, kept_us, most = now_us(ARGV[1]), redis.call, tonumber(ARGV[2]), tonumber(ARGV[3])
local latest = tonumber(call('HGET', KEYS[1], '#') or 0)
for number = 4, #ARGV do
  latest = math.max(hub_us, latest + 1)
  call('HSET', KEYS[1], ARGV[number], string.format('%.0f', latest))
end
call('HSET', KEYS[1], '#', string.format('%.0f', latest))
call('PEXPIRE', KEYS[1], math.ceil(kept_us / 1000))
local found, orders = call('HGETALL', KEYS[1]), {}
for position = 1, #found, 2 do
  local at = tonumber(found[position + 1])
  if found[position] ~= '#' then
    if hub_us - at > kept_us then call('HDEL', KEYS[1], found[position]) else orders[#orders + 1] = { at, found[position] } end
  end
end
if #orders > most then
  table.sort(orders, function(one, other) return one[1] < other[1] end)
  for number = 1, #orders - most do call('HDEL', KEYS[1], orders[number][2]) end
end
return string.format('%.0f', latest)
