-- Returns the stored mark (a hash) of the secret with which a namespace hashes keys. If no mark is stored, stores the
-- given one; if the same one is stored, keeps it for longer. Follows now.lua.
-- KEYS 1 meta  ARGV 1 the mark 2 for how many microseconds it is kept 3 the time in microseconds (tests only)
local hub_us, fields = now_us(ARGV[3]), redis.call('HMGET', KEYS[1], 'keymark', 'keymark_until')
if fields[1] and fields[1] ~= ARGV[1] and hub_us < tonumber(fields[2]) then return fields[1] end
if redis.call('HGET', KEYS[1], 'generation') then
  redis.call('HSET', KEYS[1], 'keymark', ARGV[1], 'keymark_until', string.format('%.0f', hub_us + tonumber(ARGV[2])))
end
return ARGV[1]
