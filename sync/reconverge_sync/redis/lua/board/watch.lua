-- Marks a console as open. Follows now.lua. `Board` in board.py is the definition of this script,
-- leave_snapshot.lua and read_snapshots.lua.
-- KEYS 1 the board: `#` is until when a console is open, and by name until when a snapshot is kept
-- ARGV 1 for how many microseconds 2 the time in microseconds (tests only)
local hub_us, keep_us = now_us(ARGV[2]), tonumber(ARGV[1])
local until_us = math.max(tonumber(redis.call('HGET', KEYS[1], '#') or 0), hub_us + keep_us)
redis.call('HSET', KEYS[1], '#', string.format('%.0f', until_us))
redis.call('PEXPIRE', KEYS[1], math.ceil((until_us - hub_us) / 1000) + 1000)
return 1
