-- The merge rule inside Redis: merge.py and ledger.py, which are its definition, statement by statement.
--
-- KEYS  1 meta  2 nodes  3 accounts  4... one hash for each cell of the batch; all of one shard, so of one hash slot
-- ARGV  1 the batch (msgpack, see codec.py)  2 the time in microseconds (tests only; else the server's own)
-- Returns the answer as msgpack.
--
-- A cell's hash has a field for each node, "-" for the departed ones together, and "g" for the sums.
-- Everything is checked before the first write, so that a batch is merged whole or not at all.

local VERSION = 2
local MERGED, STALE, LAPSED = 0, 1, 2
local FIXED, SLIDING, BUCKET, DATED = 0, 1, 2, 3
local SLACK_SHARED = 0.5
local SILENT_INTERVALS = 3
local SPEAK_UP_US = 1000000
local TOMBSTONE_US = 3600000000
local ACCOUNT_KEPT_US = 24 * 3600000000
local SWEEP_US = 60000000
local FADE_MILLI_MIN = 100
local REMEMBERED_US = 7 * 24 * 3600000000
local KEPT_MS = 62 * 86400000
local DEPARTED = '-'
local MOST = 9007199254740992

-- An entry, by position.
local E_EPOCH, E_RESET, E_SEEN, E_CURRENT, E_PREVIOUS, E_LINE, E_BASE, E_OVERDRAFT = 1, 2, 3, 4, 5, 6, 7, 8
local E_DEBT, E_NEED, E_ASK, E_SINCE, E_DEMAND, E_WINDOW, E_CAPACITY = 9, 10, 11, 12, 13, 14, 15
local E_CURRENT_UNTIL, E_PREVIOUS_UNTIL = 16, 17 -- of DATED alone
-- The sums.
local G_EPOCH, G_CAPACITY, G_FILLED, G_FILL, G_RESET, G_SCAN, G_LEARN, G_EXPIRES, G_LAST = 1, 2, 3, 4, 5, 6, 7, 8, 9
local G_FIRST, G_RESERVED, G_SILENT, G_LINES, G_BASES, G_OVERDRAFTS, G_DEBTS = 10, 11, 12, 13, 14, 15, 16
local G_NEEDS, G_DEMAND, G_CURRENT, G_PREVIOUS, G_WINDOW, G_ACTIVE = 17, 18, 19, 20, 21, 22
-- A limit, as the batch has it.
local L_NAME, L_KIND, L_WINDOW, L_QUOTA, L_CAPACITY, L_OVERSHOOT, L_CHARGED, L_REFUNDED = 1, 2, 3, 4, 5, 6, 7, 8
local L_VARIANT, L_WITHHELD, L_NUMBER, L_OPENS, L_CLOSES = 9, 10, 11, 12, 13
-- A cell report.
local R_LIMIT, R_EPOCH, R_CURRENT, R_PREVIOUS, R_LINE, R_BASE, R_OVERDRAFT = 1, 2, 3, 4, 5, 6, 7
local R_NEED, R_ASK, R_ASKED, R_DEMAND, R_WINDOW, R_RESET = 8, 9, 10, 11, 12, 13

local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min
local pack, unpack_ = cmsgpack.pack, cmsgpack.unpack

-- ------------------------------------------------------------------ checking

local function whole(value, least)
  return type(value) == 'number' and value >= least and value <= MOST and value == floor(value)
end

local function text(value)
  return type(value) == 'string' and #value <= 128
end

local function check(ok, what)
  if not ok then
    error({ err = 'RCINVALID the batch is malformed: ' .. what })
  end
end

local function check_batch(batch)
  check(type(batch) == 'table' and #batch == 12, 'not a batch')
  check(batch[1] == VERSION, 'schema ' .. tostring(batch[1]) .. ' is not ' .. VERSION)
  check(text(batch[2]) and text(batch[3]) and #batch[2] > 1 and #batch[3] > 1, 'names')
  check(whole(batch[4], 1) and text(batch[5]) and text(batch[6]) and #batch[6] > 0, 'sequence or incarnation')
  check(whole(batch[7], 0) and whole(batch[8], 1) and whole(batch[9], 1) and whole(batch[10], 0), 'header')
  local limits, cells = batch[11], batch[12]
  check(type(limits) == 'table' and type(cells) == 'table' and #KEYS == #cells + 3, 'limits, cells or keys')
  for _, limit in ipairs(limits) do
    check(type(limit) == 'table' and #limit == 13 and text(limit[L_NAME]), 'limit')
    check(whole(limit[L_KIND], 0) and limit[L_KIND] <= DATED and whole(limit[L_OVERSHOOT], -1), 'algorithm or overshoot')
    check(whole(limit[L_WINDOW], 1) and whole(limit[L_QUOTA], 1) and whole(limit[L_CAPACITY], 1), 'window or quota')
    check(whole(limit[L_CHARGED], 0) and whole(limit[L_REFUNDED], 0), 'lifetime numbers')
    check(text(limit[L_VARIANT]) and whole(limit[L_WITHHELD], 0), 'variant')
    check(whole(limit[L_NUMBER], 0) and whole(limit[L_OPENS], -MOST) and whole(limit[L_CLOSES], 0), 'calendar')
  end
  for _, report in ipairs(cells) do
    check(type(report) == 'table' and #report == 13, 'cell')
    check(whole(report[R_LIMIT], 0) and report[R_LIMIT] < #limits, 'limit of a cell')
    check(whole(report[R_EPOCH], -MOST) and whole(report[R_CURRENT], -MOST), 'counts of a cell')
    for field = R_PREVIOUS, R_RESET do
      check(whole(report[field], 0), 'field ' .. field .. ' of a cell')
    end
  end
end

-- ------------------------------------------------------------------ place.py

local function first_hit(limit)
  return limit[L_KIND] == FIXED and limit[L_VARIANT] == 'first-hit'
end

local function stepwise(limit)
  return limit[L_KIND] == BUCKET and limit[L_VARIANT] == 'interval'
end

local function uniform_epoch(limit, now, told)
  local epoch = floor(now / limit[L_WINDOW])
  return told == epoch + 1 and told or epoch
end

local function calendar_epoch(limit, now, told, known)
  local opens, closes = limit[L_OPENS], limit[L_CLOSES]
  if known and now < opens - (closes - opens) then return known end
  local epoch
  if now < opens then
    epoch = limit[L_NUMBER] - 1
  elseif now < closes then
    epoch = limit[L_NUMBER]
  else
    epoch = known and max(limit[L_NUMBER] + 1, known) or limit[L_NUMBER] + 1
  end
  return told == epoch + 1 and told or epoch
end

local function first_hit_epoch(limit, now, told, known, asked)
  local window = limit[L_WINDOW]
  local open_at_node = told >= 0 and math.abs(now - told) < window
  if known >= 0 and math.abs(now - known) < window and not (open_at_node and told >= known + window) then
    return known
  end
  local free = known >= 0 and known + window or -known
  if free > now + window then free = 1 end
  if open_at_node then return max(min(told, now), free) end
  return asked and max(now, free) or -free
end

local function same_window(limit, one, other)
  if one < 0 or other < 0 then return one < 0 and other < 0 end
  return math.abs(one - other) < limit[L_WINDOW]
end

-- ------------------------------------------------------------------ ledger.py

local function faded(amount, limit, g, now)
  local window = limit[L_WINDOW]
  local passed = min(max(now - g[G_EPOCH] * window, 0), window)
  return amount * (window - passed) / window
end

local function entry_used(e, limit, g, now)
  if limit[L_KIND] == FIXED then return e[E_CURRENT] end
  if limit[L_KIND] == BUCKET then return e[E_PREVIOUS] / 1000 end
  if limit[L_KIND] == DATED then return e[E_CURRENT] + e[E_PREVIOUS] end
  return e[E_CURRENT] + faded(e[E_PREVIOUS], limit, g, now)
end

local function cell_used(limit, g, now)
  if limit[L_KIND] == FIXED then return g[G_CURRENT] end
  if limit[L_KIND] == BUCKET then return g[G_PREVIOUS] / 1000 end
  if limit[L_KIND] == DATED then return g[G_CURRENT] + g[G_PREVIOUS] end
  return g[G_CURRENT] + faded(g[G_PREVIOUS], limit, g, now)
end

local function counts_for(limit)
  local runs_out = limit[L_WINDOW]
  if limit[L_KIND] == BUCKET then
    runs_out = max(runs_out, ceil(limit[L_WINDOW] * limit[L_CAPACITY] / limit[L_QUOTA]))
  end
  return 2 * runs_out
end

local function time_to_live(limit, batch)
  local lives = counts_for(limit) + 2 * batch.lease + 4 * batch.interval
  return limit[L_WITHHELD] > 0 and max(lives, REMEMBERED_US) or lives
end

local function new_entry(g, limit)
  local e = { g[G_EPOCH], g[G_RESET], 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
  if limit[L_KIND] == DATED then e[E_CURRENT_UNTIL], e[E_PREVIOUS_UNTIL] = 0, 0 end
  return e
end

local function catch_up(e, limit, g)
  local kind, steps = limit[L_KIND], g[G_EPOCH] - e[E_EPOCH]
  if steps ~= 0 then
    e[E_WINDOW] = 0
    if kind == FIXED then
      local keeps = first_hit(limit) and e[E_EPOCH] < 0 and math.abs(g[G_EPOCH]) - e[E_SEEN] < limit[L_WINDOW]
      e[E_CURRENT] = keeps and e[E_CURRENT] or 0
      e[E_LINE], e[E_DEBT], e[E_ASK] = max(e[E_BASE], e[E_CURRENT]), 0, 0
    elseif kind == SLIDING then
      e[E_PREVIOUS] = steps == 1 and e[E_CURRENT] or 0
      e[E_CURRENT] = 0
    end
    e[E_EPOCH] = g[G_EPOCH]
  end
  if e[E_RESET] < g[G_RESET] then
    e[E_PREVIOUS], e[E_DEBT] = 0, 0
    if kind ~= BUCKET then e[E_CURRENT] = 0 end
    e[E_RESET] = g[G_RESET]
  end
end

local function expire(e, limit, now)
  if limit[L_KIND] ~= DATED then return end
  if now >= e[E_CURRENT_UNTIL] then e[E_CURRENT], e[E_DEBT] = 0, 0 end
  if now >= e[E_PREVIOUS_UNTIL] then e[E_PREVIOUS] = 0 end
end

local function refilled(limit, since, till)
  if not stepwise(limit) then return till - since end
  return (floor(till / limit[L_WINDOW]) - floor(since / limit[L_WINDOW])) * limit[L_WINDOW]
end

local function drained_milli(limit, passed, line)
  return floor(max(0, passed) * limit[L_QUOTA] * line / limit[L_CAPACITY] / limit[L_WINDOW] * 1000)
end

local function depart(e, limit, g, now, idle)
  local used = ceil(entry_used(e, limit, g, now))
  local unheard = limit[L_OVERSHOOT] >= 0 and max(0, e[E_LINE] + e[E_OVERDRAFT] - used) or 0
  if limit[L_KIND] == BUCKET then
    local drained = drained_milli(limit, refilled(limit, idle, now), e[E_LINE] + e[E_DEBT])
    e[E_PREVIOUS] = max(0, e[E_PREVIOUS] + 1000 * unheard - drained)
    e[E_LINE] = ceil(e[E_PREVIOUS] / 1000)
  else
    if limit[L_KIND] == DATED and limit[L_OVERSHOOT] >= 0 and (e[E_LINE] > 0 or e[E_OVERDRAFT] > 0) then
      e[E_CURRENT_UNTIL] = max(e[E_CURRENT_UNTIL], idle + limit[L_WINDOW])
    end
    e[E_CURRENT] = e[E_CURRENT] + unheard
    e[E_LINE] = used + unheard
  end
  e[E_BASE], e[E_OVERDRAFT], e[E_DEBT], e[E_NEED], e[E_ASK], e[E_DEMAND] = 0, 0, 0, 0, 0, 0
end

local function fold(e, other, limit)
  if limit[L_KIND] ~= BUCKET then e[E_CURRENT] = e[E_CURRENT] + other[E_CURRENT] end
  e[E_PREVIOUS] = e[E_PREVIOUS] + other[E_PREVIOUS]
  e[E_LINE] = e[E_LINE] + other[E_LINE]
  e[E_WINDOW] = e[E_WINDOW] + other[E_WINDOW]
  if limit[L_KIND] == DATED then
    e[E_CURRENT_UNTIL] = max(e[E_CURRENT_UNTIL], other[E_CURRENT_UNTIL])
    e[E_PREVIOUS_UNTIL] = max(e[E_PREVIOUS_UNTIL], other[E_PREVIOUS_UNTIL])
  end
end

local function fade(e, limit, g, now)
  if limit[L_KIND] == BUCKET then
    local drained = drained_milli(limit, refilled(limit, e[E_SEEN], now), e[E_LINE])
    if drained >= min(e[E_PREVIOUS], FADE_MILLI_MIN) then
      e[E_PREVIOUS] = max(0, e[E_PREVIOUS] - drained)
      e[E_SEEN] = now
    end
    if e[E_PREVIOUS] <= 0 then e[E_LINE] = 0 end
  elseif limit[L_KIND] == DATED then
    if e[E_PREVIOUS] == 0 then
      e[E_PREVIOUS], e[E_PREVIOUS_UNTIL] = e[E_CURRENT], e[E_CURRENT_UNTIL]
      e[E_CURRENT], e[E_CURRENT_UNTIL] = 0, 0
    end
    e[E_LINE] = e[E_CURRENT] + e[E_PREVIOUS]
  elseif limit[L_KIND] == SLIDING then
    e[E_LINE] = ceil(entry_used(e, limit, g, now))
  end
end

local function empty(e, limit)
  for field = E_PREVIOUS, E_ASK do
    if e[field] ~= 0 then return false end
  end
  return e[E_WINDOW] == 0 and (e[E_CURRENT] == 0 or limit[L_KIND] == BUCKET)
end

local function count(g, e, sign)
  g[G_LINES] = g[G_LINES] + sign * e[E_LINE]
  g[G_BASES] = g[G_BASES] + sign * e[E_BASE]
  g[G_OVERDRAFTS] = g[G_OVERDRAFTS] + sign * e[E_OVERDRAFT]
  g[G_DEBTS] = g[G_DEBTS] + sign * e[E_DEBT]
  g[G_NEEDS] = g[G_NEEDS] + sign * e[E_NEED]
  g[G_DEMAND] = g[G_DEMAND] + sign * e[E_DEMAND]
  g[G_CURRENT] = g[G_CURRENT] + sign * e[E_CURRENT]
  g[G_PREVIOUS] = g[G_PREVIOUS] + sign * e[E_PREVIOUS]
  g[G_WINDOW] = g[G_WINDOW] + sign * e[E_WINDOW]
  if e[E_NEED] > 0 then g[G_ACTIVE] = g[G_ACTIVE] + sign end
end

local function resting(g, limit)
  return first_hit(limit) and g[G_EPOCH] < 0
end

local function roll(g, limit, epoch)
  local follows = epoch == g[G_EPOCH] + 1
  if first_hit(limit) then
    local ended = g[G_EPOCH] < 0 and -g[G_EPOCH] or g[G_EPOCH] + limit[L_WINDOW]
    follows = math.abs(epoch) - ended < limit[L_WINDOW]
  end
  if not (follows and resting(g, limit)) then g[G_LAST] = follows and g[G_WINDOW] or 0 end
  g[G_WINDOW], g[G_SCAN] = 0, 0
  if limit[L_KIND] == FIXED then
    g[G_LINES], g[G_DEBTS], g[G_CURRENT], g[G_SILENT] = g[G_BASES], 0, 0, 0
    g[G_FIRST], g[G_RESERVED] = '', 0
  elseif limit[L_KIND] == SLIDING then
    g[G_PREVIOUS] = follows and g[G_CURRENT] or 0
    g[G_CURRENT] = 0
  end
  g[G_EPOCH] = epoch
end

local function forget(g, limit, reset)
  g[G_RESET], g[G_PREVIOUS], g[G_DEBTS], g[G_FILL], g[G_SCAN] = reset, 0, 0, 0, 0
  if limit[L_KIND] ~= BUCKET then g[G_CURRENT] = 0 end
end

local function cell_answer(g, node, e, limit)
  return {
    g[G_EPOCH], e[E_LINE], e[E_BASE], e[E_OVERDRAFT], g[G_CAPACITY],
    max(0, g[G_CAPACITY] - g[G_LINES] - g[G_DEBTS]),
    g[G_FIRST] == node and 0 or g[G_RESERVED],
    limit[L_KIND] == BUCKET and ceil(g[G_FILL]) or g[G_CURRENT] + (limit[L_KIND] == DATED and g[G_PREVIOUS] or 0),
    g[G_PREVIOUS], g[G_SILENT], g[G_NEEDS], g[G_DEMAND], g[G_ACTIVE], g[G_LAST], g[G_WINDOW], g[G_RESET],
  }
end

-- ------------------------------------------------------------------ merge.py

local function learning_us(limit, batch, lost)
  if lost and limit[L_OVERSHOOT] == 0 then return batch.lease + counts_for(limit) end
  return max(2 * batch.interval, batch.interval + SPEAK_UP_US)
end

local function learning(g, limit, batch, meta, now)
  if now < g[G_LEARN] then return true end
  if not meta.lost and (meta.born == 0 or limit[L_OVERSHOOT] ~= 0) then return false end
  return now < meta.born + learning_us(limit, batch, meta.lost)
end

local function welcome(g, e, report, limit, batch, now)
  e[E_LINE], e[E_BASE], e[E_OVERDRAFT] = report[R_LINE], report[R_BASE], report[R_OVERDRAFT]
  if limit[L_KIND] == FIXED and report[R_EPOCH] == g[G_EPOCH] - 1 then e[E_LINE] = report[R_BASE] end
  if limit[L_KIND] == BUCKET then e[E_CURRENT] = report[R_CURRENT] - ceil(report[R_PREVIOUS] / 1000) end
  if report[R_LINE] > 0 or report[R_BASE] > 0 or report[R_OVERDRAFT] > 0 then
    g[G_LEARN] = max(g[G_LEARN], now + learning_us(limit, batch, true))
  end
end

local function lower(g, e, report, limit)
  if limit[L_KIND] ~= FIXED or report[R_EPOCH] == g[G_EPOCH] then e[E_LINE] = min(report[R_LINE], e[E_LINE]) end
  e[E_BASE] = min(report[R_BASE], e[E_BASE])
  e[E_OVERDRAFT] = min(report[R_OVERDRAFT], e[E_OVERDRAFT])
end

local function take_counts(g, e, report, limit, now)
  local kind = limit[L_KIND]
  local same_epoch = report[R_EPOCH] == g[G_EPOCH]
  local counted = report[R_RESET] >= g[G_RESET]
  if kind == BUCKET then
    local drained = refilled(limit, g[G_FILLED], now) * limit[L_QUOTA] * 1000 / limit[L_WINDOW]
    local charged = counted and (report[R_CURRENT] - e[E_CURRENT]) * 1000 or 0
    g[G_FILL] = max(0, max(0, g[G_FILL] - drained) + charged)
    g[G_FILLED] = now
    e[E_CURRENT] = report[R_CURRENT]
    e[E_PREVIOUS] = counted and report[R_PREVIOUS] or 0
  elseif kind == DATED then
    e[E_CURRENT] = counted and report[R_CURRENT] or 0
    e[E_CURRENT_UNTIL] = now + min(report[R_PREVIOUS], counts_for(limit))
  elseif same_epoch then
    e[E_CURRENT] = counted and report[R_CURRENT] or 0
    e[E_PREVIOUS] = counted and kind ~= FIXED and report[R_PREVIOUS] or 0
  elseif report[R_EPOCH] == g[G_EPOCH] - 1 and counted and kind ~= FIXED then
    e[E_PREVIOUS] = report[R_CURRENT]
  end
  local used = entry_used(e, limit, g, now)
  e[E_DEBT] = max(0, ceil(used) - e[E_LINE])
  e[E_NEED], e[E_DEMAND] = report[R_NEED], report[R_DEMAND]
  e[E_WINDOW] = same_epoch and report[R_WINDOW] or 0
  if report[R_ASK] > 0 and e[E_LINE] - used < report[R_ASK] then
    if e[E_ASK] == 0 then e[E_SINCE] = now end
    e[E_ASK] = report[R_ASK]
  else
    e[E_ASK] = 0
  end
  e[E_SEEN], e[E_CAPACITY] = now, limit[L_CAPACITY]
  g[G_CAPACITY] = min(g[G_CAPACITY], limit[L_CAPACITY])
end

local function raise(g, node, e, target, pool, used, free)
  local head = e[E_LINE] - used
  local wanted = ceil(target - head)
  if e[E_ASK] <= 0 or e[E_ASK] > pool then return max(0, min(wanted, free)) end
  if g[G_FIRST] == '' then wanted = max(wanted, ceil(e[E_ASK] - head)) end
  local raised = max(0, min(wanted, free))
  if head + raised >= e[E_ASK] then return raised end
  if g[G_FIRST] == '' then
    g[G_FIRST], g[G_RESERVED] = node, ceil(e[E_ASK] - head)
  end
  return 0
end

local function grant(g, node, e, report, limit, now)
  local kind, capacity = limit[L_KIND], g[G_CAPACITY]
  local used = entry_used(e, limit, g, now)
  if kind == BUCKET then
    e[E_LINE] = e[E_LINE] + max(0, min(e[E_DEBT], capacity - g[G_LINES] - e[E_LINE]))
    e[E_DEBT] = max(0, ceil(used) - e[E_LINE])
  end
  if e[E_NEED] == 0 then return end
  local need, needs = e[E_NEED] / 1000, (g[G_NEEDS] + e[E_NEED]) / 1000
  local share = need / needs
  local pool = max(0, capacity - (cell_used(limit, g, now) + used) - g[G_SILENT])
  if kind ~= FIXED or (report[R_EPOCH] == g[G_EPOCH] and not resting(g, limit)) then
    local target
    if pool >= needs then target = need + SLACK_SHARED * (pool - needs) * share else target = pool * share end
    if report[R_ASKED] > 0 or target >= 1 then
      local free = capacity - g[G_LINES] - g[G_DEBTS] - e[E_LINE] - g[G_RESERVED]
      e[E_LINE] = e[E_LINE] + raise(g, node, e, target, pool, used, free)
      e[E_DEBT] = max(0, ceil(used) - e[E_LINE])
    end
  end
  if kind == FIXED and report[R_EPOCH] == g[G_EPOCH] and (report[R_ASKED] > 0 or capacity * share >= 1) then
    local wanted = ceil(capacity * share) - e[E_BASE]
    e[E_BASE] = e[E_BASE] + max(0, min(wanted, capacity - g[G_BASES] - e[E_BASE]))
  end
  if limit[L_OVERSHOOT] > 0 then
    local overdrafts = floor(capacity * limit[L_OVERSHOOT] / 1000)
    local wanted = floor(overdrafts / (g[G_ACTIVE] + 1)) - e[E_OVERDRAFT]
    e[E_OVERDRAFT] = e[E_OVERDRAFT] + max(0, min(wanted, overdrafts - g[G_OVERDRAFTS] - e[E_OVERDRAFT]))
  end
end

local all_records
local function record_of(name)
  if not all_records then
    all_records = {}
    local fields = redis.call('HGETALL', KEYS[2])
    for position = 1, #fields, 2 do all_records[fields[position]] = unpack_(fields[position + 1]) end
  end
  return all_records[name]
end

local function scan(key, g, node, e, limit, batch, now)
  g[G_SCAN] = now + batch.interval
  for field = G_SILENT, G_ACTIVE do g[field] = 0 end
  local first_since, first_name, first_entry
  local capacity = limit[L_CAPACITY]
  local kept, gone = nil, {}
  local departed = new_entry(g, limit)
  departed[E_SEEN] = now
  local fields = redis.call('HGETALL', key)
  local names, entries = { node }, { [node] = e }
  for position = 1, #fields, 2 do
    local name = fields[position]
    if name ~= 'g' and name ~= node then
      names[#names + 1] = name
      entries[name] = unpack_(fields[position + 1])
    end
  end
  for _, name in ipairs(names) do
    local x = entries[name]
    local before = pack(x)
    catch_up(x, limit, g)
    expire(x, limit, now)
    if name == DEPARTED then
      fade(x, limit, g, now)
      kept = x
    else
      local record = record_of(name)
      if name == node then record = batch.record end
      local seen = record and max(x[E_SEEN], record[1]) or x[E_SEEN]
      local lease = record and record[4] or batch.lease
      local left = record and record[5] == 1 and name ~= node
      if left or now - seen > lease or now - x[E_SEEN] > time_to_live(limit, batch) then
        local held = x[E_LINE] > 0 or x[E_OVERDRAFT] > 0
        depart(x, limit, g, now, held and seen + lease or x[E_SEEN])
        fold(departed, x, limit)
        gone[#gone + 1] = name
      else
        if now - seen > SILENT_INTERVALS * (record and record[3] or batch.interval) then
          x[E_NEED], x[E_DEMAND], x[E_ASK] = 0, 0, 0
          g[G_SILENT] = g[G_SILENT] + max(0, x[E_LINE] - floor(entry_used(x, limit, g, now)))
        end
        capacity = min(capacity, x[E_CAPACITY])
        local since = x[E_SINCE]
        if x[E_ASK] > 0 and (not first_name or since < first_since or (since == first_since and name < first_name)) then
          first_since, first_name, first_entry = since, name, x
        end
        count(g, x, 1)
        local after = pack(x)
        if name ~= node and after ~= before then redis.call('HSET', key, name, after) end
      end
    end
  end
  if kept then
    if departed[E_LINE] == 0 then departed[E_SEEN] = kept[E_SEEN] end
    fold(departed, kept, limit)
  end
  if not empty(departed, limit) then
    redis.call('HSET', key, DEPARTED, pack(departed))
    count(g, departed, 1)
  elseif kept then
    gone[#gone + 1] = DEPARTED
  end
  if #gone > 0 then redis.call('HDEL', key, unpack(gone)) end
  g[G_CAPACITY] = capacity
  g[G_FIRST], g[G_RESERVED] = '', 0
  if first_name then
    g[G_FIRST] = first_name
    g[G_RESERVED] = max(0, ceil(first_entry[E_ASK] - (first_entry[E_LINE] - entry_used(first_entry, limit, g, now))))
  end
end

local function epoch_of(limit, report, known, now)
  if first_hit(limit) then return first_hit_epoch(limit, now, report[R_EPOCH], known or -1, report[R_ASK] > 0) end
  if limit[L_CLOSES] > 0 then return calendar_epoch(limit, now, report[R_EPOCH], known) end
  if stepwise(limit) then return floor(now / limit[L_WINDOW]) end
  return uniform_epoch(limit, now, report[R_EPOCH])
end

local function withhold(key, g, limit, now)
  local e = new_entry(g, limit)
  e[E_SEEN], e[E_PREVIOUS], e[E_LINE] = now, 1000 * limit[L_WITHHELD], limit[L_WITHHELD]
  redis.call('HSET', key, DEPARTED, pack(e))
  g[G_FILL] = 1000 * limit[L_WITHHELD]
  count(g, e, 1)
end

local function merge_cell(key, report, batch, meta, now)
  local limit = batch.limits[report[R_LIMIT] + 1]
  local node = batch.node
  local found = redis.call('HMGET', key, 'g', node)
  local g = found[1] and unpack_(found[1])
  local e = found[2] and unpack_(found[2])
  if g and now > g[G_EXPIRES] then
    redis.call('DEL', key)
    g = nil
  end
  local epoch = epoch_of(limit, report, g and g[G_EPOCH], now)
  if not g then
    e = nil
    g = { epoch, limit[L_CAPACITY], now, 0, 0, 0, 0, 0, 0, '', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
    if limit[L_WITHHELD] > 0 then withhold(key, g, limit, now) end
  end
  local lives = time_to_live(limit, batch)
  g[G_EXPIRES] = max(g[G_EXPIRES], now + lives)
  if epoch > g[G_EPOCH] or epoch < g[G_EPOCH] - 1 then roll(g, limit, epoch) end
  if first_hit(limit) then
    report[R_EPOCH] = same_window(limit, report[R_EPOCH], g[G_EPOCH]) and g[G_EPOCH] or g[G_EPOCH] - 1
  end
  if report[R_RESET] > g[G_RESET] then forget(g, limit, report[R_RESET]) end
  if e then
    catch_up(e, limit, g)
    count(g, e, -1)
    lower(g, e, report, limit)
  else
    e = new_entry(g, limit)
    welcome(g, e, report, limit, batch, now)
  end
  take_counts(g, e, report, limit, now)
  count(g, e, 1)
  if now >= g[G_SCAN] or g[G_SCAN] > now + batch.interval then scan(key, g, node, e, limit, batch, now) end
  if g[G_FIRST] == node then g[G_FIRST], g[G_RESERVED] = '', 0 end
  if not batch.leaving and not learning(g, limit, batch, meta, now) then
    count(g, e, -1)
    grant(g, node, e, report, limit, now)
    count(g, e, 1)
  end
  local answer = cell_answer(g, node, e, limit)
  if empty(e, limit) then
    count(g, e, -1)
    redis.call('HSET', key, 'g', pack(g))
    redis.call('HDEL', key, node)
  else
    redis.call('HSET', key, 'g', pack(g), node, pack(e))
  end
  redis.call('PEXPIRE', key, ceil((g[G_EXPIRES] - now) / 1000))
  return answer, lives
end

-- Accounts are stored flat: when last seen, then name, charged, refunded for each limit.
local function keep_account(batch, now)
  local stored = redis.call('HGET', KEYS[3], batch.account)
  local account = stored and unpack_(stored) or { now }
  account[1] = now
  for _, limit in ipairs(batch.limits) do
    local place = #account + 1
    for position = 2, #account, 3 do
      if account[position] == limit[L_NAME] then place = position end
    end
    account[place] = limit[L_NAME]
    account[place + 1] = max(account[place + 1] or 0, limit[L_CHARGED])
    account[place + 2] = max(account[place + 2] or 0, limit[L_REFUNDED])
  end
  redis.call('HSET', KEYS[3], batch.account, pack(account))
end

local function sweep(now)
  local records = redis.call('HGETALL', KEYS[2])
  for position = 1, #records, 2 do
    local record = unpack_(records[position + 1])
    if now - record[1] > record[4] + TOMBSTONE_US then redis.call('HDEL', KEYS[2], records[position]) end
  end
  local accounts = redis.call('HGETALL', KEYS[3])
  local sums, closed = nil, {}
  for position = 1, #accounts, 2 do
    local account = unpack_(accounts[position + 1])
    if accounts[position] == DEPARTED then
      sums = account
    elseif now - account[1] > ACCOUNT_KEPT_US then
      closed[#closed + 1] = account
      redis.call('HDEL', KEYS[3], accounts[position])
    end
  end
  if #closed == 0 then return end
  sums = sums or { now }
  for _, account in ipairs(closed) do
    for position = 2, #account, 3 do
      local place = #sums + 1
      for known = 2, #sums, 3 do
        if sums[known] == account[position] then place = known end
      end
      sums[place] = account[position]
      sums[place + 1] = (sums[place + 1] or 0) + account[position + 1]
      sums[place + 2] = (sums[place + 2] or 0) + account[position + 2]
    end
  end
  redis.call('HSET', KEYS[3], DEPARTED, pack(sums))
end

local function live_at_least(key, lives_ms)
  if redis.call('PTTL', key) < lives_ms / 2 then redis.call('PEXPIRE', key, lives_ms) end
end

-- ------------------------------------------------------------------ one exchange

local fine, raw = pcall(unpack_, ARGV[1])
if not fine then return redis.error_reply('RCINVALID the batch is not msgpack') end
local well_formed, problem = pcall(check_batch, raw)
if not well_formed then
  return redis.error_reply(type(problem) == 'table' and problem.err or 'RCINVALID the batch is malformed')
end
local batch = {
  node = raw[2], account = raw[3], sequence = raw[4], incarnation = raw[5], candidate = raw[6],
  certainly_new = raw[7] == 1, interval = raw[8], lease = raw[9], leaving = raw[10] == 1,
  limits = raw[11], cells = raw[12],
}
local now = tonumber(ARGV[2])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end

local fields = redis.call('HMGET', KEYS[1], 'incarnation', 'born', 'lost', 'swept')
local meta = {
  incarnation = fields[1], born = tonumber(fields[2] or now), lost = fields[3] == '1', swept = tonumber(fields[4] or 0),
}
if not meta.incarnation then
  meta.incarnation, meta.born = batch.candidate, batch.certainly_new and 0 or now
  redis.call('HSET', KEYS[1], 'incarnation', meta.incarnation, 'born', string.format('%.0f', meta.born))
end
local stored = redis.call('HGET', KEYS[2], batch.node)
local record = stored and unpack_(stored)
if record and (record[5] == 1 or now - record[1] > record[4]) then
  record[5] = 1
  redis.call('HSET', KEYS[2], batch.node, pack(record))
  return pack({ VERSION, now, meta.incarnation, LAPSED, {} })
end
if record and batch.sequence <= record[2] then return pack({ VERSION, now, meta.incarnation, STALE, {} }) end
if batch.incarnation ~= '' and batch.incarnation ~= meta.incarnation and not meta.lost then
  meta.lost = true
  if meta.born == 0 then meta.born = now end
  redis.call('HSET', KEYS[1], 'lost', '1', 'born', string.format('%.0f', meta.born))
end
if now - meta.swept > SWEEP_US then
  sweep(now)
  redis.call('HSET', KEYS[1], 'swept', string.format('%.0f', now))
end
batch.record = { now, batch.sequence, batch.interval, batch.lease, batch.leaving and 1 or 0 }
redis.call('HSET', KEYS[2], batch.node, pack(batch.record))
keep_account(batch, now)
local answers, lives_ms = {}, KEPT_MS
for position, report in ipairs(batch.cells) do
  local answer, lives = merge_cell(KEYS[position + 3], report, batch, meta, now)
  answers[position] = answer
  lives_ms = max(lives_ms, ceil(lives / 1000))
end
for position = 1, 3 do live_at_least(KEYS[position], lives_ms) end
return pack({ VERSION, now, meta.incarnation, MERGED, answers })
