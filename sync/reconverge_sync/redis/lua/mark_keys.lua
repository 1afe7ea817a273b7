-- Returns the stored mark of keys. If no mark is stored, stores the given one; if the same one is stored, keeps it for
-- longer.
-- KEYS 1 the mark's place  ARGV 1 the mark 2 milliseconds until it is deleted
local found = redis.call('HGET', KEYS[1], 'mark')
if found and found ~= ARGV[1] then return found end
redis.call('HSET', KEYS[1], 'mark', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return ARGV[1]
