-- Gives the lease of the export to this exporter, unless another one has it. Follows now.lua. `UsageShard.lead_export`
-- in merge/usage.py is the definition. Returns 1 or 0, the holder, the end of its lease, and the time.
-- KEYS 1 the lease  ARGV 1 exporter 2 microseconds of the lease 3 the time in microseconds (tests only)
local hub_us = now_us(ARGV[3])
local found = redis.call('HMGET', KEYS[1], 'exporter', 'until')
if found[1] and found[1] ~= ARGV[1] and hub_us < tonumber(found[2]) then
  return { 0, found[1], found[2], string.format('%.0f', hub_us) }
end
local until_us = string.format('%.0f', hub_us + ARGV[2])
redis.call('HSET', KEYS[1], 'exporter', ARGV[1], 'until', until_us)
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.ceil(ARGV[2] / 1000)))
return { 1, ARGV[1], until_us, string.format('%.0f', hub_us) }
