-- Returns the loads that nodes have reported, and deletes those that are too old. Follows now.lua.
-- KEYS 1 loads  ARGV 1 microseconds after which a node counts as gone 2 the time in microseconds (tests only)
local hub_us, found, answer = now_us(ARGV[2]), redis.call('HGETALL', KEYS[1]), {}
for position = 1, #found, 2 do
  local _, _, at_us = cmsgpack.unpack(found[position + 1])
  if at_us + ARGV[1] > hub_us then
    answer[#answer + 1], answer[#answer + 2] = found[position], found[position + 1]
  else
    redis.call('HDEL', KEYS[1], found[position])
  end
end
return answer
