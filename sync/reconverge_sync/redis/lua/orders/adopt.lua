-- Adopts the new data of a shard after a loss: they count as having begun long ago. `merge/orders.py` is the
-- definition, and has checked before that this is allowed. Returns 1, or 0 if the shard's data are of another
-- generation by now.
-- KEYS 1 meta  ARGV 1 the generation 2 when adopted data count as begun, in microseconds
local call = redis.call
if call('HGET', KEYS[1], 'generation') ~= ARGV[1] then return 0 end
local adopted = tonumber(call('HGET', KEYS[1], 'adopted') or 0) + 1
call('HSET', KEYS[1], 'lost', '1', 'born', ARGV[2], 'adopted', adopted)
return 1
