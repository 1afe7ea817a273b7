-- Merges a node's sketches of the addresses from which identities come. Follows now.lua. `AddressShard.note` in
-- merge/addresses.py is the definition. Returns how many identities were left out.
-- KEYS 1 the sketches of an hour and a secret  ARGV 1 packed: identity and risen registers, in turn; two bytes for each
--   register, its number and its rank 2 identities at most 3 milliseconds to keep 4 the highest rank 5 from when and 6
--   until when the hour is counted, in microseconds 7 the time in microseconds (tests only)
-- Fields of the hash: 'n' is the number of sketches; 'i' and an identity, the sketch of that identity.
local REGISTERS -- from hub/usage.py
local call, reported, room_max = redis.call, cmsgpack.unpack(ARGV[1]), tonumber(ARGV[2])
local count, left_out, rank_max = tonumber(call('HGET', KEYS[1], 'n') or 0), 0, tonumber(ARGV[4])
local hub_us = now_us(ARGV[7])
if hub_us < tonumber(ARGV[5]) or hub_us >= tonumber(ARGV[6]) then return #reported / 2 end
for place = 1, #reported, 2 do
  local field, risen = 'i' .. reported[place], reported[place + 1]
  local sketch = call('HGET', KEYS[1], field)
  if not sketch and count >= room_max then
    left_out = left_out + 1
  else
    if not sketch then sketch, count = string.rep('\0', REGISTERS), count + 1 end
    for each = 1, #risen, 2 do
      local at, rank = string.byte(risen, each) + 1, math.min(string.byte(risen, each + 1), rank_max)
      if rank > string.byte(sketch, at) then
        sketch = string.sub(sketch, 1, at - 1) .. string.char(rank) .. string.sub(sketch, at + 1)
      end
    end
    call('HSET', KEYS[1], field, sketch)
  end
end
call('HSET', KEYS[1], 'n', string.format('%.0f', count))
call('PEXPIRE', KEYS[1], ARGV[3])
return left_out
