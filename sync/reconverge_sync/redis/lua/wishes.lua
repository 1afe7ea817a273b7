-- Returns the list of cells that need a loan, from the hash of the shard, and deletes what is too old. Follows now.lua.
-- `Lending.current` in merge/loans.py is the definition.
-- KEYS 1 meta 2 nodes  ARGV 1 the time in microseconds (tests only)
local call, unpack_, hub_us, lease_us = redis.call, cmsgpack.unpack, now_us(ARGV[1]), 0
local records = call('HGETALL', KEYS[2])
for position = 2, #records, 2 do lease_us = math.max(lease_us, unpack_(records[position])[4]) end
local reply = { string.format('%.0f', hub_us), call('HGET', KEYS[1], 'generation') or '', lease_us }
local fields, listed = call('HGETALL', KEYS[1]), 0
for position = 1, #fields, 2 do
  local name, packed = fields[position], fields[position + 1]
  if name == 'listed' then listed = tonumber(packed) end
  if string.find(name, ':', 1, true) then
    local wish = { unpack_(packed) }
    if hub_us - wish[11] > wish[10] + 2 * lease_us then
      call('HDEL', KEYS[1], name)
    else
      reply[#reply + 1] = name
      reply[#reply + 1] = packed
    end
  end
end
local found = (#reply - 3) / 2
if found ~= listed then call('HSET', KEYS[1], 'listed', found) end
return reply
