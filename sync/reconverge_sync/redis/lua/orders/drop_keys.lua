-- Deletes the cells in which no live node has an entry, and takes them off the list of those that need a loan. Follows
-- now.lua. Deletes all recalls, too, as these name keys. `drop_keys` in merge/orders.py is the definition. Returns how
-- many were deleted, and how many stay.
-- KEYS 1 meta 2 nodes 3... cells  ARGV 1 the time in microseconds (tests only)
local SEEN_US, LEASE_US -- from redis/lua/layout.py
local META = 4 -- the length of 'meta'
local hub_us, call, unpack_, dropped, kept = now_us(ARGV[1]), redis.call, cmsgpack.unpack, 0, 0
local records = {}
call('HDEL', KEYS[1], 'recalls')
local function is_live(node, packed)
  local record = records[node]
  if record == nil then
    local found = call('HGET', KEYS[2], node)
    record = found and unpack_(found) or false
    records[node] = record
  end
  if not record or record[5] == 1 then return false end
  local entry = { unpack_(packed) }
  local lease_us, own_us = record[4], entry[LEASE_US] or 0
  if own_us > 0 then lease_us = math.min(lease_us, own_us) end
  return hub_us - math.max(entry[SEEN_US], record[1]) <= lease_us
end
for number = 3, #KEYS do
  local fields, held = call('HGETALL', KEYS[number]), false
  for position = 1, #fields, 2 do
    local name = fields[position]
    if name ~= 'g' and name ~= 'l' and name ~= '-' then held = held or is_live(name, fields[position + 1]) end
  end
  if held then
    kept = kept + 1
  elseif #fields > 0 then
    call('DEL', KEYS[number])
    if call('HDEL', KEYS[1], string.sub(KEYS[number], #KEYS[1] - META + 1)) > 0 then
      call('HSET', KEYS[1], 'listed', math.max(0, tonumber(call('HGET', KEYS[1], 'listed') or 1) - 1))
    end
    dropped = dropped + 1
  end
end
return { dropped, kept }
