-- Returns all that is stored of some cells of one shard at one moment. Follows now.lua. Writes nothing, and computes
-- nothing: `stored.py` parses the result, and `merge/reading.py` computes with it.
-- KEYS 1 meta 2 nodes 3... cells  ARGV 1 the time in microseconds (tests only)
local call, meta = redis.call, redis.call('HMGET', KEYS[1], 'generation', 'born', 'lost', 'schema',
  'adopted')
local reply = { string.format('%.0f', now_us(ARGV[1])), meta[1] or '', meta[2] or '0', meta[3] or '0', meta[4] or '0',
  meta[5] or '0', call('HGETALL', KEYS[2]) }
for number = 3, #KEYS do reply[#reply + 1] = call('HGETALL', KEYS[number]) end
return reply
