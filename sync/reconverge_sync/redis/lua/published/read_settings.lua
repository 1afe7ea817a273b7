-- Returns the mark and the payload of the settings; only the mark if the reader knows it, nothing if there are none.
-- KEYS 1 the settings  ARGV 1 the mark that the reader knows 2 how many bytes it takes at most
local mark = redis.call('HGET', KEYS[1], 'mark')
if not mark then return {} end
if mark ~= '' and mark == ARGV[1] then return {mark} end
local payload = redis.call('HGET', KEYS[1], 'payload') or ''
return {string.sub(mark, 1, 64), string.sub(payload, 1, tonumber(ARGV[2]))}
