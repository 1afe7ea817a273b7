-- Replaces the index of the contracts if it still equals what its writer has read: the first ARGV[4] bytes are
-- compared.
-- KEYS 1 the index  ARGV 1 payload 2 mark 3 milliseconds until it is deleted 4 how many bytes 5 what was read, if any
local there = redis.call('HGET', KEYS[1], 'payload')
if not there and redis.call('HGET', KEYS[1], 'mark') then there = '' end
if there then there = string.sub(there, 1, tonumber(ARGV[4])) end
if there ~= (ARGV[5] or false) then return 0 end
redis.call('HSET', KEYS[1], 'payload', ARGV[1], 'mark', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
-- Notifies the nodes that listen. Where the user may not publish, nodes find the change when they next read the index.
redis.pcall('PUBLISH', KEYS[1], '')
return 1
