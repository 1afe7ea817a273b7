-- Takes all that bears an identity out of one hash of usage. `UsageShard.erase` in merge/usage.py is the definition.
-- KEYS 1 totals, issued, pending events, or the rows of an account  ARGV 1 the identity and NUL 2 which of them: t i p o, or
-- a for sketches of addresses, which `AddressShard.erase` in merge/addresses.py forgets; these are no rows.
local call, gone = redis.call, 0
local begins, kind = ARGV[1], ARGV[2]
if kind == 'a' then
  if call('HDEL', KEYS[1], 'i' .. string.sub(begins, 1, -2)) > 0 then
    call('HSET', KEYS[1], 'n', string.format('%.0f', math.max(0, tonumber(call('HGET', KEYS[1], 'n') or 0) - 1)))
  end
  return 0
end
local found = call('HGETALL', KEYS[1]) -- a user without the right to HKEYS runs this
for position = 1, #found, 2 do
  local field = found[position]
  local name = kind == 'p' and string.match(field, '^%d+:(.*)$') or field
  if string.sub(name, 1, #begins) == begins then gone = gone + call('HDEL', KEYS[1], field) end
end
if kind == 't' and gone > 0 then
  call('HSET', KEYS[1], '#', string.format('%.0f', math.max(0, tonumber(call('HGET', KEYS[1], '#') or 0) - gone)))
end
return gone
