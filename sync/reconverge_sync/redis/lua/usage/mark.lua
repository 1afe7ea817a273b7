-- Raises a mark of the export to a period that is over, and clears the mark of a late period, unless more usage has
-- come since. Follows now.lua. `UsageShard.close_period` and `UsageShard.finish` in merge/usage.py are the definition.
-- Returns 0 if the period is not over.
-- KEYS 1 meta  ARGV 1 the mark's name 2 number 3 milliseconds of meta 4 the name of the late period 5 its mark, or ''
--   6 when the period ends, in microseconds 7 the time in microseconds (tests only)
if now_us(ARGV[7]) < tonumber(ARGV[6]) then return 0 end
local call = redis.call
local known = call('HGET', KEYS[1], ARGV[1])
if not known or tonumber(known) < tonumber(ARGV[2]) then call('HSET', KEYS[1], ARGV[1], ARGV[2]) end
if ARGV[5] ~= '' and call('HGET', KEYS[1], ARGV[4]) == ARGV[5] then call('HDEL', KEYS[1], ARGV[4]) end
call('PEXPIRE', KEYS[1], ARGV[3])
return 1
