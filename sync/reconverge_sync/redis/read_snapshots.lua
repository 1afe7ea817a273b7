-- All snapshots that are kept. Follows now.lua.
-- KEYS 1 the board, see watch.lua 2 snapshots by name  ARGV 1 how many bytes of each 2 the time (tests only)
local hub_us, told = now_us(ARGV[2]), {}
local found = redis.call('HGETALL', KEYS[1])
for position = 1, #found, 2 do
  if found[position] ~= '#' and tonumber(found[position + 1]) > hub_us then
    local payload = redis.call('HGET', KEYS[2], found[position])
    if payload then told[#told + 1], told[#told + 2] = found[position], string.sub(payload, 1, tonumber(ARGV[1])) end
  end
end
return told
