-- Keeps a snapshot of a node, if a console is open and there is room. Follows now.lua.
-- KEYS 1 the board, see watch.lua 2 snapshots by name
-- ARGV 1 the name 2 the snapshot 3 for how many microseconds 4 how many may be kept 5 the time (tests only)
-- Returns for how many microseconds a console stays open, and whether the snapshot was kept; an empty name keeps none.
local hub_us, call = now_us(ARGV[5]), redis.call
local open_us = math.max(0, tonumber(call('HGET', KEYS[1], '#') or 0) - hub_us)
local open_for = string.format('%.0f', open_us)
if open_us == 0 or ARGV[1] == '' then return { open_for, 0 } end
if not call('HGET', KEYS[1], ARGV[1]) then
  local found, kept = call('HGETALL', KEYS[1]), 0
  for position = 1, #found, 2 do
    if found[position] ~= '#' then
      if tonumber(found[position + 1]) <= hub_us then
        call('HDEL', KEYS[1], found[position])
        call('HDEL', KEYS[2], found[position])
      else
        kept = kept + 1
      end
    end
  end
  if kept >= tonumber(ARGV[4]) then return { open_for, 0 } end
end
call('HSET', KEYS[1], ARGV[1], string.format('%.0f', hub_us + tonumber(ARGV[3])))
call('HSET', KEYS[2], ARGV[1], ARGV[2])
call('PEXPIRE', KEYS[2], math.ceil((open_us + tonumber(ARGV[3])) / 1000) + 1000)
return { open_for, 1 }
