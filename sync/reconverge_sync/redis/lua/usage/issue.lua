-- Makes events for that usage in one page of a period which no event has reported yet; returns all pending events.
-- `UsageShard.issue` in merge/usage.py is the definition.
-- KEYS 1 totals 2 issued 3 pending  ARGV 1 events at most 2 milliseconds to keep
local call, pack, unpack_ = redis.call, cmsgpack.pack, cmsgpack.unpack
local most = tonumber(ARGV[1])
local function table_of(key)
  local found, fields = call('HGETALL', key), {}
  for position = 1, #found, 2 do fields[found[position]] = found[position + 1] end
  return fields, #found / 2
end
local pending, count = table_of(KEYS[3])
if count < most then
  local issued = table_of(KEYS[2])
  for field, total in pairs((table_of(KEYS[1]))) do
    if count >= most then break end
    if field ~= '#' then
      local sum = { unpack_(total) }
      local said = issued[field] and { unpack_(issued[field]) } or { 0, 0, 0, 0 }
      if sum[1] ~= said[2] or sum[2] ~= said[3] or sum[3] ~= said[4] then
        local name = string.format('%.0f', said[1]) .. ':' .. field
        pending[name], count = pack(sum[1] - said[2], sum[2] - said[3], sum[3] - said[4]), count + 1
        call('HSET', KEYS[3], name, pending[name])
        call('HSET', KEYS[2], field, pack(said[1] + 1, sum[1], sum[2], sum[3]))
      end
    end
  end
  call('PEXPIRE', KEYS[2], ARGV[2])
  call('PEXPIRE', KEYS[3], ARGV[2])
end
local answer = {}
for name, counts in pairs(pending) do
  if #answer >= 2 * most then break end
  answer[#answer + 1], answer[#answer + 2] = name, counts
end
return answer
