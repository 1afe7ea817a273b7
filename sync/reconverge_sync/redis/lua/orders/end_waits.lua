-- Ends the time in which cells grant nothing because nodes may still hold allowances of them; see adopt.lua. Returns
-- how many cells did wait.
-- KEYS cells.
local LEARN_UNTIL_US -- from redis/lua/layout.py
local ended = 0
for _, key in ipairs(KEYS) do
  local sums = redis.call('HGET', key, 'g')
  local fields = sums and { cmsgpack.unpack(sums) } or {}
  if (fields[LEARN_UNTIL_US] or 0) > 0 then
    fields[LEARN_UNTIL_US] = 0
    redis.call('HSET', key, 'g', cmsgpack.pack(unpack(fields)))
    ended = ended + 1
  end
end
return ended
