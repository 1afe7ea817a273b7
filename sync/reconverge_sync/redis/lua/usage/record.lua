-- Merges the usage that an account reports. Follows now.lua. `UsageShard.record` in merge/usage.py is the definition.
-- KEYS 1 meta 2 the account's sequence 3 loads, then for each group the totals and the account's own rows, then the
--   hashes to delete when the account leaves
-- ARGV 1 header 2 groups, both packed 3 the time in microseconds (tests only)
-- header: sequence, answered, leaving (0 or 1), milliseconds of a sequence, of meta, rows of a page at most, node,
--   requests and cost per second in thousandths (or an empty node), microseconds after which a node counts as gone
-- groups: kind, number, milliseconds to keep, the route of OTHERS, from when and until when rows are counted by the
--   hub's clock, in microseconds, then field, cost, requests, refused of each row
-- answer: the sequence before, whether this one was merged, rows counted under OTHERS, the time, how many rows were
--   refused, their numbers (from 1, through all groups), then each kind of period and the last one that is done
local GONE -- from merge/usage.py
local OTHERS -- from hub/usage.py
local PRUNED_EVERY = 64
local call, pack, unpack_ = redis.call, cmsgpack.pack, cmsgpack.unpack
local function whole(number) return string.format('%.0f', number) end
local header, groups, hub_us = unpack_(ARGV[1]), unpack_(ARGV[2]), now_us(ARGV[3])
local sequence, answered, leaving, sequence_ms, meta_ms, rows_max, node = unpack(header)
local known = tonumber(call('HGET', KEYS[2], 'n') or 0)
local found = call('HGETALL', KEYS[1])
local meta, fresh = {}, {}
for position = 1, #found, 2 do meta[found[position]] = found[position + 1] end

local function replace(total_key, own_key, own, field, cost, requests, refused, others, rows)
  local said = own and { unpack_(own) } or { 0, 0, 0 }
  if said[1] == cost and said[2] == requests and said[3] == refused then return 0, rows, false end
  call('HSET', own_key, field, pack(cost, requests, refused))
  local target, folded = field, 0
  local identity, limit = string.match(field, '^([^%z]*)%z([^%z]*)%z')
  local total = call('HGET', total_key, field)
  if not total and identity ~= OTHERS then
    if rows >= rows_max then
      target, folded = OTHERS .. '\0' .. limit .. '\0' .. others, 1
      total = call('HGET', total_key, target)
    else
      rows = rows + 1
    end
  end
  local sum = total and { unpack_(total) } or { 0, 0, 0 }
  call('HSET', total_key, target, pack(
    sum[1] + cost - said[1], sum[2] + requests - said[2], sum[3] + refused - said[3]))
  return folded, rows, true
end

local folded_in_all, merged = 0, answered <= known and known < sequence
local ordinal, refusals = 0, {}
if merged then
  call('HSET', KEYS[2], 'n', whole(leaving == 1 and GONE or sequence))
  call('PEXPIRE', KEYS[2], sequence_ms)
  for place, group in ipairs(groups) do
    local kind, number, keep_ms, others, from_us, until_us = unpack(group, 1, 6)
    local dated_well = from_us <= hub_us and hub_us < until_us
    local total_key, own_key = KEYS[2 + 2 * place], KEYS[3 + 2 * place]
    local before = tonumber(call('HGET', total_key, '#') or 0)
    local rows, some, folded, changed = before, false, 0, false
    for position = 7, #group, 4 do
      ordinal = ordinal + 1
      local field = group[position]
      local own = call('HGET', own_key, field)
      if own or dated_well then
        folded, rows, changed = replace(
          total_key, own_key, own, field, group[position + 1], group[position + 2], group[position + 3], others, rows)
        folded_in_all, some = folded_in_all + folded, some or changed
      else
        refusals[#refusals + 1] = ordinal
      end
    end
    if rows ~= before then call('HSET', total_key, '#', whole(rows)) end
    if some then
      if call('PTTL', total_key) < keep_ms then call('PEXPIRE', total_key, whole(keep_ms)) end
      call('PEXPIRE', own_key, whole(keep_ms))
      local first, closed = 'first:' .. kind, tonumber(meta['closed:' .. kind] or -1)
      if number < tonumber(meta[first] or number + 1) then
        meta[first] = whole(number)
        fresh[first] = meta[first]
      end
      if number <= closed then
        local late = 'late:' .. kind .. ':' .. whole(number)
        meta[late] = whole(tonumber(meta[late] or 0) + 1)
        fresh[late] = meta[late]
      end
    end
  end
  for place = 4 + 2 * #groups, #KEYS do call('DEL', KEYS[place]) end
  if node ~= '' then
    if sequence % PRUNED_EVERY == 1 then
      local loads = call('HGETALL', KEYS[3])
      for position = 1, #loads, 2 do
        local _, _, at_us = unpack_(loads[position + 1])
        if at_us + header[10] <= hub_us then call('HDEL', KEYS[3], loads[position]) end
      end
    end
    call('HSET', KEYS[3], node, pack(header[8], header[9], hub_us))
    call('PEXPIRE', KEYS[3], sequence_ms)
  end
end
for name, value in pairs(fresh) do call('HSET', KEYS[1], name, value) end
call('PEXPIRE', KEYS[1], whole(meta_ms))
local answer = { whole(known), merged and 1 or 0, folded_in_all, whole(hub_us), #refusals }
for _, each in ipairs(refusals) do answer[#answer + 1] = each end
for name, value in pairs(meta) do
  if string.sub(name, 1, 5) == 'done:' then
    answer[#answer + 1] = string.sub(name, 6)
    answer[#answer + 1] = value
  end
end
return answer
