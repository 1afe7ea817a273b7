-- Takes back some rows of an account, as if the account had never reported them. `UsageShard.retract` in merge/usage.py
-- is the definition.
-- KEYS for each group: totals, issued, pending, the account's own rows  ARGV for each group its fields, packed
local call, pack, unpack_ = redis.call, cmsgpack.pack, cmsgpack.unpack
for group, packed in ipairs(ARGV) do
  local totals, issued, pending, own = unpack(KEYS, 4 * group - 3, 4 * group)
  for _, field in ipairs(unpack_(packed)) do
    local said, total = call('HGET', own, field), call('HGET', totals, field)
    call('HDEL', own, field)
    if said and total then
      local less, sum = { unpack_(said) }, { unpack_(total) }
      for place = 1, 3 do sum[place] = sum[place] - less[place] end
      if sum[1] == 0 and sum[2] == 0 and sum[3] == 0 then
        call('HDEL', totals, field)
        call('HSET', totals, '#', string.format('%.0f', math.max(0, tonumber(call('HGET', totals, '#') or 0) - 1)))
        local count = call('HGET', issued, field)
        for number = 0, (count and unpack_(count) or 0) - 1 do
          call('HDEL', pending, string.format('%.0f', number) .. ':' .. field)
        end
        call('HDEL', issued, field)
      else
        call('HSET', totals, field, pack(sum[1], sum[2], sum[3]))
      end
    end
  end
end
