-- The mark of a namespace's key secret: the one that is there, which is renewed if it is the same; or else the one that
-- is answered from now on. Follows now.lua.
-- KEYS 1 meta  ARGV 1 the mark 2 for how many microseconds it is kept 3 the time in microseconds (tests only)
local hub_us, fields = now_us(ARGV[3]), redis.call('HMGET', KEYS[1], 'keymark', 'keymark_until')
if fields[1] and fields[1] ~= ARGV[1] and hub_us < tonumber(fields[2]) then return fields[1] end
if redis.call('HGET', KEYS[1], 'generation') then
  redis.call('HSET', KEYS[1], 'keymark', ARGV[1], 'keymark_until', string.format('%.0f', hub_us + tonumber(ARGV[2])))
end
return ARGV[1]
