-- Lends to the cells of one shard, and returns how much each holds of this lender's loans. Follows now.lua.
-- `Lending.lend` in merge/loans.py is the definition.
-- KEYS 1 meta 2... cells  ARGV 1 lender 2 sequence 3 the time in microseconds (tests only) 4... of each cell, the
--   amount and the end of its loan
local LENDERS_MAX -- from merge/loans.py
local call, pack, unpack_, hub_us = redis.call, cmsgpack.pack, cmsgpack.unpack, now_us(ARGV[3])
local lender, sequence, found, stale = ARGV[1], tonumber(ARGV[2]), {}, false
for number = 2, #KEYS do
  local fields = call('HMGET', KEYS[number], 'g', 'l')
  local loans = fields[2] and { unpack_(fields[2]) } or {}
  for position = 2, #loans, 4 do
    if loans[position] == lender and sequence <= loans[position + 3] then stale = true end
  end
  found[number] = { fields[1], fields[2] and loans }
end
local reply = { string.format('%.0f', hub_us), call('HGET', KEYS[1], 'generation') or '', stale and 1 or 0 }
for number = 2, #KEYS do
  local sums, loans, held = found[number][1] and { unpack_(found[number][1]) }, found[number][2], -1
  if sums and hub_us <= sums[4] then
    local amount, until_us = tonumber(ARGV[2 * number]), tonumber(ARGV[2 * number + 1])
    local kept, lenders, own, others = { 0 }, 0, nil, 0
    for position = 2, #(loans or {}), 4 do
      if loans[position + 2] > hub_us then
        if loans[position] == lender then
          own = { lender, loans[position + 1], loans[position + 2], loans[position + 3] }
        else
          others = others + loans[position + 1]
          for offset = 0, 3 do kept[#kept + 1] = loans[position + offset] end
        end
        lenders = lenders + 1
      end
    end
    if not stale and (own or lenders < LENDERS_MAX) and until_us > hub_us then
      own = { lender, amount, until_us, sequence }
      for _, field in ipairs(own) do kept[#kept + 1] = field end
      call('HSET', KEYS[number], 'l', pack(unpack(kept)))
    end
    own = own and own[2] or 0
    held = math.max(own, sums[6] + (sums[17] or 0) - sums[2] - others)
  end
  reply[#reply + 1] = held
end
return reply
