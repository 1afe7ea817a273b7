-- Returns a page of contracts, or its beginning if it is too long.
-- KEYS 1 the page  ARGV 1 how many bytes its reader takes at most
local payload = redis.call('HGET', KEYS[1], 'payload')
return payload and string.sub(payload, 1, tonumber(ARGV[1]))
