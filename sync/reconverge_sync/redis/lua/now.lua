-- Returns the hub's time in microseconds: the server's own, or the one that a test gives. Redis has no imports for
-- scripts, so this file is sent before the text of each script that needs the time.
local function now_us(given)
  if tonumber(given) then return tonumber(given) end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
