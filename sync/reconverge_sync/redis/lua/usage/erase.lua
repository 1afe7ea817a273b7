-- Deletes the rows of an identity from one hash of usage, and returns how many. `UsageShard.erase` in merge/usage.py
-- and `AddressShard.erase` in merge/addresses.py are the definition.
-- KEYS 1 the hash  ARGV 1 the identity and NUL 2 the kind of hash: t totals, i issued, p pending events, o the rows of
--   an account, or a sketches of addresses, which are no rows and are not counted
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
