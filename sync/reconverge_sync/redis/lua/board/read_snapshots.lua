-- Returns all snapshots that are kept. Deletes those whose time is over, as they contain keys. Follows now.lua.
-- KEYS 1 the board, see watch.lua 2 snapshots by name  ARGV 1 how many bytes of each are read 2 the time (tests only)
local hub_us, reply = now_us(ARGV[2]), {}
local found = redis.call('HGETALL', KEYS[1])
for position = 1, #found, 2 do
  local name = found[position]
  if name ~= '#' and tonumber(found[position + 1]) > hub_us then
    local payload = redis.call('HGET', KEYS[2], name)
    if payload then reply[#reply + 1], reply[#reply + 2] = name, string.sub(payload, 1, tonumber(ARGV[1])) end
  elseif name ~= '#' then
    redis.call('HDEL', KEYS[1], name)
    redis.call('HDEL', KEYS[2], name)
  end
end
return reply
