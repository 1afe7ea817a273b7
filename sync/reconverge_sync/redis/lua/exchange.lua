-- The merge rule inside Redis. Its definition is sync/reconverge_sync/merge/ in Python: rule.py, hearing.py,
-- granting.py, asking.py, ledger.py, windows.py, bounds.py, and the part of loans.py that a batch needs. This is the
-- same in Lua.
--
-- KEYS  1 meta  2 nodes  3 accounts  4... one hash for each cell of the batch; all of one shard, so of one hash slot
-- ARGV  1 the batch without its cells (msgpack)  2 its cells, in rows (see codec.py)
--       3 the time in microseconds (tests only; else the server's own)
-- Returns the answer as codec.py reads it.
--
-- A cell's hash has a field for each node, "-" for the departed ones together, and "g" for the sums.
-- Everything is checked before the first write, so that a batch is merged whole or not at all.
--
-- Most of this code runs for each cell of each exchange. So the current cell, entry and report are in variables, not in
-- tables; values that depend on the limit alone are computed once; and numbers are read from strings, and written, many
-- at a time. The commands of Redis take little of the time: 0.4 to 0.8 us each, three for a cell. An earlier version
-- turned msgpack arrays into tables and back, called a function to check each number, and looked fields up by numbers
-- that it first had to look up: a cell cost 17.5 us with it, and costs 6.6 us now.
--
-- The answer is packed in one piece, because Redis' Lua hashes every byte of every string that is made. This takes a
-- sixth of the time, and shorter keys save more than shorter code. The expiry of a cell moves in steps of a quarter of
-- its time to live, so that PEXPIRE is seldom called. Tried and rejected: to store doubles (no faster in the whole,
-- twice the memory), narrow integers (faster with Redis 7, slower with 6.2), or each cell as one string (saves no call,
-- and the cost and the traffic to a replica grow with the fleet).

-- The current cell, the current one of its entries, the current report, and the rule of the limit, field by field. They
-- are variables, not tables, because they are looked up some two hundred times for each cell.
local cell_epoch, cell_capacity, cell_scanned_us, cell_expires_us, cell_last_demand
local cell_allowances, cell_overdrafts, cell_needs_milli, cell_demand_milli
local cell_current, cell_previous, cell_window_demand, cell_active
local cell_bases, cell_filled_us, cell_fill_milli
local cell_debts, cell_silent, cell_reset_us, cell_learn_until_us, cell_first, cell_reserved, cell_restless
local entry_epoch, entry_seen_us, entry_current, entry_previous, entry_allowance, entry_overdraft
local entry_need_milli, entry_demand_milli, entry_window_demand, entry_capacity, entry_base
local entry_debt, entry_ask, entry_ask_since_us, entry_reset_us, entry_current_until_us, entry_previous_until_us
local entry_lease_us
local report_epoch, report_current, report_previous, report_allowance, report_base, report_overdraft
local report_need_milli, report_ask, report_asked, report_demand_milli, report_window_demand, report_reset_us
local rule, fixed, sliding, bucket, dated, window_us
local lent = 0

-- All else is inside one function, and the variables above are outside. Each exchange makes all functions anew, and for
-- each Lua searches a list for each local that it captures, unless that is captured already: with the variables inside
-- of this function, the search took 30 us of each exchange.
local function exchange()

-- A constant that one function alone needs is inside of it, because Lua allows a function 200 local variables.
-- A constant that Python has, too, gets its value from scripts.py when that loads this script.
local SCHEMA_VERSION, WHOLE_MAX, FORGOTTEN, ASKS, AT_HUB, FLOATS -- from hub/report.py
local MERGED, STALE, LAPSED, DEPARTED_FIELD, LOANS, KEPT_MS -- from redis/lua/layout.py
local FIXED, SLIDING, BUCKET, DATED, SLOTS -- from codec.py
local CELLS_MAX -- from hub/json_codec.py
local QUOTA_MAX -- from limit/limit.py
local WINDOW_MAX_US, LEASE_MAX_US, INTERVAL_MAX_US, DEBT_MAX -- from merge/bounds.py
local NEEDS_MAX, NEED_MAX_MILLI, SAID_MAX -- from merge/bounds.py
local SWEEP_US, SCANNED_MAX, TURN -- from merge/rule.py

local floor, ceil, max, min, abs = math.floor, math.ceil, math.max, math.min, math.abs
local call = redis.call
local pack, unpack_ = cmsgpack.pack, cmsgpack.unpack
local to_bytes, from_bytes = struct.pack, struct.unpack

-- Formats of rows, with amounts of 32 bits or of 64. Amounts that may not be negative are read without a sign, so that
-- a negative one is found to be too large. An `i` without a number has 32 bits, and is read faster than one with a
-- number.
local REPORT, REPORT_BYTES, REPORT_WIDE, REPORT_WIDE_BYTES -- from redis/lua/layout.py
local ANSWER, ANSWER_WIDE, ANSWER_HEADER, NARROW_MAX -- from redis/lua/layout.py

-- ------------------------------------------------------------------ checking

local check_batch
do -- Lua allows a function 200 local variables
  local function whole(value, least)
    return type(value) == 'number' and value >= least and value <= WHOLE_MAX and value == floor(value)
  end

  local function text(value)
    return type(value) == 'string' and #value <= 128
  end

  local function check(ok, what)
    if not ok then
      error('RCINVALID the batch is malformed: ' .. what, 0)
    end
  end

  function check_batch(raw, rows)
    check(type(raw) == 'table' and #raw == 12, 'not a batch')
    if raw[1] ~= SCHEMA_VERSION then check(false, 'schema ' .. tostring(raw[1]) .. ' is not ' .. SCHEMA_VERSION) end
    check(text(raw[2]) and text(raw[3]) and #raw[2] > 1 and #raw[3] > 1, 'names')
    check(whole(raw[4], 1) and text(raw[5]) and text(raw[6]) and #raw[6] > 0, 'sequence or generation')
    check(whole(raw[7], 0) and whole(raw[8], 1) and whole(raw[9], 1) and whole(raw[10], 0) and whole(raw[12], 0), 'header')
    check(raw[8] <= INTERVAL_MAX_US and raw[9] <= LEASE_MAX_US, 'interval or lease')
    local limits = raw[11]
    check(type(limits) == 'table', 'limits')
    for _, limit in ipairs(limits) do
      check(type(limit) == 'table' and #limit >= 13 and #limit <= 15 and text(limit[1]), 'limit')
      check(whole(limit[2], 0) and limit[2] <= SLOTS and whole(limit[6], -1), 'algorithm or overshoot')
      check(whole(limit[3], 1) and whole(limit[4], 1) and whole(limit[5], 1), 'window or quota')
      check(limit[3] <= WINDOW_MAX_US and limit[4] <= QUOTA_MAX and limit[5] <= QUOTA_MAX, 'window or quota')
      check(whole(limit[7], 0) and whole(limit[8], 0), 'lifetime numbers')
      check(text(limit[9]) and whole(limit[10], 0) and limit[10] <= limit[5], 'variant')
      check(whole(limit[11], 0) and whole(limit[12], -WHOLE_MAX) and whole(limit[13], 0), 'calendar')
      check(limit[14] == nil or whole(limit[14], limit[15] and 0 or 1) and limit[14] <= INTERVAL_MAX_US, 'interval')
      check(limit[15] == nil or whole(limit[15], 1), 'part')
    end
    local cells, known = #KEYS - 3, #limits
    check(type(rows) == 'string' and cells >= 0 and cells <= CELLS_MAX, 'cells or keys')
    if #rows == cells * REPORT_BYTES then
      for position = 1, #rows, REPORT_BYTES do
        local epoch, reset_us, limit = from_bytes('<i8I8I', rows, position)
        if limit >= known then check(false, 'limit of a cell') end
        if epoch > WHOLE_MAX or epoch < -WHOLE_MAX or reset_us > WHOLE_MAX then check(false, 'moments of a cell') end
      end
      return REPORT, REPORT_BYTES
    end
    check(#rows == cells * REPORT_WIDE_BYTES, 'cells or keys')
    for position = 1, #rows, REPORT_WIDE_BYTES do
      local epoch, reset_us, limit, current = from_bytes('<i8I8I8i8', rows, position)
      if limit >= known then check(false, 'limit of a cell') end
      local most = max(epoch, -epoch, reset_us, current, -current, from_bytes('<I8I8I8I8I8I8I8I8I8', rows, position + 32))
      if most > WHOLE_MAX then
        check(false, 'numbers of a cell')
      end
    end
    return REPORT_WIDE, REPORT_WIDE_BYTES
  end
end

-- Whether the node forgets the key with the current report.
local forgotten = false
-- A field of the current entry; it is here because a function can capture sixty variables of outer ones at most.
local entry_vouchers, entry_sealed = 0, 0
-- Of a request for a quota that is kept at the hub: whether the report has one, whether the quota is small, the cost
-- that waits, and the cost that was granted.
local at_hub, small, waiting, granted, report_floats = false, false, 0, 0, false
local sealed = 0 -- the node's sealed share, as it is answered; false if the hub deals out none
-- Of a bucket: the cell's vouchers, and the hub's own bucket, which is the entry of the departed nodes. `spare_milli`
-- is how much more could have drained of it since the last merge than it held, at the rate of `rule.spare_share`.
local cell_vouchers, cell_pooled, cell_carry_milli, spare_milli = 0, 0, 0, 0
local cell_unit = 1 -- the mean cost of the latest requests that asked
local cell_uncovered = 0
local pool, pool_previous, pool_allowance, pool_window_demand, pool_changed = false, 0, 0, 0, false
local fill_most_milli
local held = 0 -- the allowance of a bucket from before it was kept at the hub
-- The sums over the entries that float and were read so far.
local float_held, float_current, float_previous, float_vouchers
-- Set once for each exchange.
local hub_us, meta, batch, node, stirred_us, calm_us
-- How many entries scans may still read in this exchange.
local scans_left = SCANNED_MAX
local cramped = false -- the server has reached its maxmemory: known cells are served, and no cell is begun
-- Fields of the current rule that each cell needs: variables, because they are looked up faster than fields of a table.
-- `rule_capacity` is the capacity without loans.
local rule_capacity, rule_small_allowances, rule_apart, rule_epoch, rule_lives_us, rule_learns_until_us
local rule_overdrafts, rule_elsewhere

-- ------------------------------------------------------------------ limits and their rules

local function time_to_live(of, lease_us, interval_us)
  local REMEMBERED_US -- from merge/ledger.py
  local lives_us = of.counts_for_us + 2 * lease_us + 4 * max(interval_us, of.own_interval_us)
  return of.withheld > 0 and max(lives_us, REMEMBERED_US) or lives_us
end

local function silent_after_us(interval_us)
  local SILENT_INTERVALS, SPEAK_UP_US -- from merge/rule.py
  return max(SILENT_INTERVALS * interval_us, SPEAK_UP_US + interval_us)
end

local function learning_us(of, lost)
  local SPEAK_UP_US -- from merge/rule.py
  local heard_us = max(2 * batch.interval_us, batch.interval_us + SPEAK_UP_US)
  if lost and of.overshoot_milli == 0 and of.slots then return max(of.lease_us, heard_us) end
  if lost and of.overshoot_milli == 0 then return batch.lease_us + of.counts_for_us end
  return heard_us
end

-- The moment until which allowances of this limit may exist that no node has reported since the hub's data began.
local function learns_until(of)
  if not meta.lost and (meta.born_us == 0 or of.overshoot_milli ~= 0) then return 0 end
  return meta.born_us + learning_us(of, meta.lost)
end

local function has_small_allowances(of)
  local runs_out_us = of.window_us
  if of.kind == BUCKET then
    local drains_us = of.window_us * of.capacity / of.quota
    runs_out_us = of.stepwise and max(runs_out_us, drains_us) or drains_us
  end
  return of.overshoot_milli >= 0 and runs_out_us > of.lease_us and not of.slots
end

local function rule_of(limit)
  local made = {
    name = limit[1], kind = limit[2], window_us = limit[3], quota = limit[4], capacity = limit[5],
    overshoot_milli = limit[6], charged = limit[7], refunded = limit[8], withheld = limit[10],
    window = limit[11], opens_us = limit[12], closes_us = limit[13],
    own_interval_us = limit[14] or 0, interval_us = batch.interval_us, apart = min(limit[15] or 0, limit[5]),
    first_hit = limit[2] == FIXED and limit[9] == 'first-hit',
    stepwise = limit[2] == BUCKET and limit[9] == 'interval',
    slots = limit[2] == SLOTS,
  }
  if made.own_interval_us > 0 then made.interval_us = made.own_interval_us end
  made.own = made.capacity - made.apart
  local runs_out_us = made.window_us
  if made.kind == BUCKET then
    runs_out_us = max(runs_out_us, ceil(min(made.window_us * made.capacity / made.quota, WINDOW_MAX_US)))
  end
  made.fill_max_milli = 1000 * DEBT_MAX * max(made.capacity, made.quota)
  made.need_max_milli = min(1000 * NEEDS_MAX * made.capacity, NEED_MAX_MILLI)
  made.ask_max = max(made.capacity, made.quota)
  made.overdraft_max = made.capacity
  if made.overshoot_milli >= 0 then
    made.overdraft_max = min(floor(made.capacity * made.overshoot_milli / 1000), SAID_MAX)
  end
  made.counts_for_us = 2 * runs_out_us
  -- The lease of a limit travels in the field `window`, which is in use only with a calendar: sent_limit in
  -- hub/report.py.
  made.lease_us = made.closes_us == 0 and made.window > 0 and min(made.window, batch.lease_us) or batch.lease_us
  made.entry_lease_us = made.lease_us < batch.lease_us and made.lease_us or 0
  made.lives_us = time_to_live(made, made.lease_us, batch.interval_us)
  made.small_allowances = has_small_allowances(made)
  made.kept_us = made.lives_us + floor(made.lives_us / 4)
  made.learns_until_us = learns_until(made)
  made.epoch = made.slots and 0 or floor(hub_us / made.window_us)
  made.elsewhere = made.first_hit or made.closes_us > 0 and not made.slots
  local SILENCE_MAX_S, WINDOW_SHARE, INTERVALS_MIN -- from hub/headroom.py
  local silence_us = min(floor(made.window_us / WINDOW_SHARE), 1000000 * SILENCE_MAX_S)
  made.may_be_silent = silence_us >= INTERVALS_MIN * made.interval_us
  made.overdrafts = floor(made.own * made.overshoot_milli / 1000)
  local SEALED_WINDOW_MAX_S -- from hub/headroom.py
  made.seals = made.kind == SLIDING or made.kind == FIXED and not (made.slots or made.first_hit)
  made.seals = made.seals and made.overshoot_milli >= 0 and made.window_us <= SEALED_WINDOW_MAX_S * 1000000
  made.sets_aside = made.seals and made.kind == SLIDING -- fixed windows begin with what is set aside
  return made
end

local function use_rule(of)
  local kind = of.kind
  rule, window_us = of, of.window_us
  fixed, sliding, bucket, dated = kind == FIXED or of.slots, kind == SLIDING, kind == BUCKET, kind == DATED
  rule_capacity, rule_epoch, rule_lives_us, rule_elsewhere = of.own, of.epoch, of.lives_us, of.elsewhere
  rule_apart, rule_small_allowances = of.apart > 0, of.small_allowances
  -- A node that leaves is granted nothing.
  rule_overdrafts, rule_learns_until_us = of.overdrafts, batch.leaving and WHOLE_MAX or of.learns_until_us
end

-- ------------------------------------------------------------------ merge/windows.py

local function calendar_epoch(reported, known)
  local opens_us, closes_us = rule.opens_us, rule.closes_us
  if known and hub_us < opens_us - (closes_us - opens_us) then return known end
  local epoch
  if hub_us < opens_us then
    epoch = rule.window - 1
  elseif hub_us < closes_us then
    epoch = rule.window
  else
    epoch = known and max(rule.window + 1, known) or rule.window + 1
  end
  return reported == epoch + 1 and reported or epoch
end

local function first_hit_epoch(reported, known, asked)
  local open_at_node = reported >= 0 and abs(hub_us - reported) < window_us
  if known >= 0 and abs(hub_us - known) < window_us and not (open_at_node and reported >= known + window_us) then
    return known
  end
  local free_us = known >= 0 and known + window_us or -known
  if free_us > hub_us + window_us then free_us = 1 end
  if open_at_node then return max(min(reported, hub_us), free_us) end
  return asked and max(hub_us, free_us) or -free_us
end

local function same_window(one, other)
  if one < 0 or other < 0 then return one < 0 and other < 0 end
  return abs(one - other) < window_us
end

-- ------------------------------------------------------------------ what is stored

-- Fields that are mostly zero come last, and are left out when they are.
local function read_cell(packed)
  cell_epoch, cell_capacity, cell_scanned_us, cell_expires_us, cell_last_demand,
    cell_allowances, cell_overdrafts, cell_needs_milli, cell_demand_milli,
    cell_current, cell_previous, cell_window_demand, cell_active,
    cell_bases, cell_filled_us, cell_fill_milli,
    cell_debts, cell_silent, cell_reset_us, cell_learn_until_us, cell_first, cell_reserved, cell_restless,
    cell_vouchers, cell_pooled, cell_carry_milli, cell_unit, cell_uncovered = unpack_(packed)
  if not cell_unit then cell_unit = 1 end
  if not cell_uncovered then cell_uncovered = 0 end
  if not cell_carry_milli then cell_vouchers, cell_pooled, cell_carry_milli = 0, 0, 0 end
  if not cell_restless then
    if not cell_fill_milli then cell_bases, cell_filled_us, cell_fill_milli = cell_bases or 0, 0, 0 end
    cell_debts, cell_silent, cell_reset_us, cell_learn_until_us, cell_first, cell_reserved = 0, 0, 0, 0, '', 0
    cell_restless = 0
  end
end

local function written_cell()
  if cell_unit ~= 1 or cell_uncovered ~= 0 then
    return pack(
      cell_epoch, cell_capacity, cell_scanned_us, cell_expires_us, cell_last_demand,
      cell_allowances, cell_overdrafts, cell_needs_milli, cell_demand_milli,
      cell_current, cell_previous, cell_window_demand, cell_active,
      cell_bases, cell_filled_us, cell_fill_milli,
      cell_debts, cell_silent, cell_reset_us, cell_learn_until_us, cell_first, cell_reserved, cell_restless,
      cell_vouchers, bucket and pool and 1 or 0, cell_carry_milli, cell_unit, cell_uncovered)
  end
  if bucket and (pool or cell_vouchers ~= 0) then
    return pack(
      cell_epoch, cell_capacity, cell_scanned_us, cell_expires_us, cell_last_demand,
      cell_allowances, cell_overdrafts, cell_needs_milli, cell_demand_milli,
      cell_current, cell_previous, cell_window_demand, cell_active,
      cell_bases, cell_filled_us, cell_fill_milli,
      cell_debts, cell_silent, cell_reset_us, cell_learn_until_us, cell_first, cell_reserved, cell_restless,
      cell_vouchers, pool and 1 or 0, cell_carry_milli)
  end
  if
    cell_debts ~= 0 or cell_silent ~= 0 or cell_reserved ~= 0 or cell_first ~= '' or cell_learn_until_us ~= 0
    or cell_reset_us ~= 0 or cell_restless ~= 0
  then
    return pack(
      cell_epoch, cell_capacity, cell_scanned_us, cell_expires_us, cell_last_demand,
      cell_allowances, cell_overdrafts, cell_needs_milli, cell_demand_milli,
      cell_current, cell_previous, cell_window_demand, cell_active,
      cell_bases, cell_filled_us, cell_fill_milli,
      cell_debts, cell_silent, cell_reset_us, cell_learn_until_us, cell_first, cell_reserved, cell_restless)
  end
  if bucket or dated then
    return pack(
      cell_epoch, cell_capacity, cell_scanned_us, cell_expires_us, cell_last_demand,
      cell_allowances, cell_overdrafts, cell_needs_milli, cell_demand_milli,
      cell_current, cell_previous, cell_window_demand, cell_active,
      cell_bases, cell_filled_us, cell_fill_milli)
  end
  if cell_bases ~= 0 then
    return pack(
      cell_epoch, cell_capacity, cell_scanned_us, cell_expires_us, cell_last_demand,
      cell_allowances, cell_overdrafts, cell_needs_milli, cell_demand_milli,
      cell_current, cell_previous, cell_window_demand, cell_active,
      cell_bases)
  end
  return pack(
    cell_epoch, cell_capacity, cell_scanned_us, cell_expires_us, cell_last_demand,
    cell_allowances, cell_overdrafts, cell_needs_milli, cell_demand_milli,
    cell_current, cell_previous, cell_window_demand, cell_active)
end

local function read_entry(packed)
  entry_epoch, entry_seen_us, entry_current, entry_previous, entry_allowance, entry_overdraft,
    entry_need_milli, entry_demand_milli, entry_window_demand, entry_capacity, entry_base,
    entry_debt, entry_ask, entry_ask_since_us, entry_reset_us,
    entry_current_until_us, entry_previous_until_us, entry_lease_us, entry_vouchers, entry_sealed = unpack_(packed)
  if not entry_reset_us then
    entry_base, entry_debt, entry_ask, entry_ask_since_us, entry_reset_us = entry_base or 0, 0, 0, 0, 0
  end
  if not entry_previous_until_us then entry_current_until_us, entry_previous_until_us = 0, 0 end
  if not entry_lease_us then entry_lease_us = 0 end
  if not entry_vouchers then entry_vouchers = 0 end
  if not entry_sealed then entry_sealed = 0 end
end

local function written_entry()
  if entry_sealed ~= 0 then
    return pack(
      entry_epoch, entry_seen_us, entry_current, entry_previous, entry_allowance, entry_overdraft,
      entry_need_milli, entry_demand_milli, entry_window_demand, entry_capacity, entry_base,
      entry_debt, entry_ask, entry_ask_since_us, entry_reset_us,
      entry_current_until_us, entry_previous_until_us, entry_lease_us, entry_vouchers, entry_sealed)
  end
  if entry_vouchers ~= 0 then
    return pack(
      entry_epoch, entry_seen_us, entry_current, entry_previous, entry_allowance, entry_overdraft,
      entry_need_milli, entry_demand_milli, entry_window_demand, entry_capacity, entry_base,
      entry_debt, entry_ask, entry_ask_since_us, entry_reset_us,
      entry_current_until_us, entry_previous_until_us, entry_lease_us, entry_vouchers)
  end
  if entry_lease_us ~= 0 then
    return pack(
      entry_epoch, entry_seen_us, entry_current, entry_previous, entry_allowance, entry_overdraft,
      entry_need_milli, entry_demand_milli, entry_window_demand, entry_capacity, entry_base,
      entry_debt, entry_ask, entry_ask_since_us, entry_reset_us,
      entry_current_until_us, entry_previous_until_us, entry_lease_us)
  end
  if dated then
    return pack(
      entry_epoch, entry_seen_us, entry_current, entry_previous, entry_allowance, entry_overdraft,
      entry_need_milli, entry_demand_milli, entry_window_demand, entry_capacity, entry_base,
      entry_debt, entry_ask, entry_ask_since_us, entry_reset_us,
      entry_current_until_us, entry_previous_until_us)
  end
  if entry_debt ~= 0 or entry_ask ~= 0 or entry_reset_us ~= 0 then
    return pack(
      entry_epoch, entry_seen_us, entry_current, entry_previous, entry_allowance, entry_overdraft,
      entry_need_milli, entry_demand_milli, entry_window_demand, entry_capacity, entry_base,
      entry_debt, entry_ask, entry_ask_since_us, entry_reset_us)
  end
  if entry_base ~= 0 then
    return pack(
      entry_epoch, entry_seen_us, entry_current, entry_previous, entry_allowance, entry_overdraft,
      entry_need_milli, entry_demand_milli, entry_window_demand, entry_capacity, entry_base)
  end
  return pack(
    entry_epoch, entry_seen_us, entry_current, entry_previous, entry_allowance, entry_overdraft,
    entry_need_milli, entry_demand_milli, entry_window_demand, entry_capacity)
end

local function new_entry()
  entry_epoch, entry_reset_us = cell_epoch, cell_reset_us
  entry_seen_us, entry_current, entry_previous, entry_allowance, entry_base, entry_overdraft = 0, 0, 0, 0, 0, 0
  entry_need_milli, entry_demand_milli, entry_window_demand, entry_capacity = 0, 0, 0, 0
  entry_debt, entry_ask, entry_ask_since_us, entry_current_until_us, entry_previous_until_us = 0, 0, 0, 0, 0
  entry_lease_us, entry_vouchers, entry_sealed = 0, 0, 0
end

-- ------------------------------------------------------------------ merge/ledger.py

-- The use that counts now, from the two counts of an entry or from their sums over all entries.
local function used_of(current, previous)
  if sliding then
    if previous == 0 then return current end
    local passed_us = hub_us - cell_epoch * window_us
    if passed_us < 0 then passed_us = 0 elseif passed_us > window_us then passed_us = window_us end
    return current + previous * (window_us - passed_us) / window_us
  end
  if fixed then return current end
  if bucket then return previous / 1000 end
  return current + previous
end

-- Brings the entry up to the cell's window and last reset; called if the entry is behind. A fixed window begins with the
-- base; with nothing if the base is a sealed share that is certainly `closed`.
local function catch_up(closed)
  local steps = cell_epoch - entry_epoch
  if steps ~= 0 then
    entry_window_demand = 0
    if fixed then
      local keeps = rule.first_hit and entry_epoch < 0 and abs(cell_epoch) - entry_seen_us < window_us
      entry_current = keeps and entry_current or 0
      entry_allowance, entry_debt, entry_ask = max(closed and 0 or entry_base, entry_current), 0, 0
    elseif sliding then
      entry_previous = steps == 1 and entry_current or 0
      entry_current = 0
    end
    entry_epoch = cell_epoch
  end
  if entry_reset_us < cell_reset_us then
    entry_previous, entry_debt = 0, 0
    if not bucket then entry_current = 0 end
    entry_reset_us = cell_reset_us
  end
end

-- Drops dated use that counts no more. Returns whether there may have been any.
local function expire()
  local ended, before_ended = hub_us >= entry_current_until_us, hub_us >= entry_previous_until_us
  if ended then entry_current, entry_debt = 0, 0 end
  if before_ended then entry_previous = 0 end
  return ended or before_ended
end

local function refilled(since_us, until_us)
  if not rule.stepwise then return until_us - since_us end
  return (floor(until_us / window_us) - floor(since_us / window_us)) * window_us
end

local function drained_milli(passed_us, allowance, declared)
  local part = allowance * rule_capacity / rule.capacity / max(rule_capacity, declared, 1)
  return max(0, passed_us) * rule.quota * part / window_us * 1000
end

local function depart(idle_us)
  local counts = rule.overshoot_milli >= 0 and (bucket or hub_us - idle_us <= rule.counts_for_us)
  local held = counts and entry_allowance + entry_overdraft or 0
  if rule.slots then
    entry_current, entry_allowance = 0, 0
  elseif bucket then
    local drained = drained_milli(refilled(idle_us, hub_us), entry_allowance - entry_vouchers, entry_capacity)
    entry_previous = max(0, max(entry_previous, 1000 * held) - floor(drained))
    entry_allowance = ceil(entry_previous / 1000)
  else
    local used = ceil(used_of(entry_current, entry_previous))
    if dated and held > 0 then
      entry_current_until_us = max(entry_current_until_us, idle_us + window_us)
    end
    entry_previous_until_us = 0
    entry_current = entry_current + max(0, held - used)
    entry_allowance = max(used, held)
  end
  entry_base, entry_overdraft, entry_debt, entry_need_milli, entry_ask, entry_demand_milli = 0, 0, 0, 0, 0, 0
  entry_vouchers, entry_sealed = 0, 0
end

local function fade()
  if bucket then
    entry_allowance = ceil(entry_previous / 1000)
  elseif dated then
    if entry_previous == 0 then
      entry_previous, entry_previous_until_us = entry_current, entry_current_until_us
      entry_current, entry_current_until_us = 0, 0
    end
    entry_allowance = entry_current + entry_previous
  elseif sliding then
    entry_allowance = ceil(used_of(entry_current, entry_previous))
  end
end

local function empty()
  return entry_allowance == 0 and entry_need_milli == 0 and entry_previous == 0 and (entry_current == 0 or bucket)
    and entry_base == 0 and entry_overdraft == 0 and entry_debt == 0 and entry_ask == 0 and entry_window_demand == 0
end

local function floats()
  return sliding and (entry_allowance == 0 or entry_vouchers > 0)
end

local function add_floating()
  float_held = float_held + entry_allowance + entry_debt
  float_current = float_current + entry_current + entry_vouchers
  float_previous = float_previous + entry_previous
  float_vouchers = float_vouchers + entry_vouchers
end

local function count()
  cell_allowances = cell_allowances + entry_allowance
  cell_bases = cell_bases + entry_base
  cell_overdrafts = cell_overdrafts + entry_overdraft
  cell_debts = cell_debts + entry_debt
  if entry_debt > entry_overdraft then cell_uncovered = cell_uncovered + entry_debt - entry_overdraft end
  cell_needs_milli = cell_needs_milli + entry_need_milli
  cell_demand_milli = cell_demand_milli + entry_demand_milli
  cell_current = cell_current + entry_current
  cell_previous = cell_previous + entry_previous
  cell_window_demand = cell_window_demand + entry_window_demand
  if entry_need_milli > 0 then cell_active = cell_active + 1 end
  if entry_vouchers ~= 0 then cell_vouchers = cell_vouchers + entry_vouchers end
  if dated then
    rule.lasts_until_us = cell_filled_us -- without this entry, for the answer to its node
    if entry_current > 0 then
      cell_filled_us = min(cell_filled_us, entry_previous > 0 and entry_current_until_us or entry_previous_until_us)
    end
    if entry_previous > 0 then cell_filled_us = min(cell_filled_us, entry_previous_until_us) end
  end
end

local function discount()
  cell_allowances = cell_allowances - entry_allowance
  cell_bases = cell_bases - entry_base
  cell_overdrafts = cell_overdrafts - entry_overdraft
  cell_debts = cell_debts - entry_debt
  if entry_debt > entry_overdraft then cell_uncovered = cell_uncovered - entry_debt + entry_overdraft end
  cell_needs_milli = cell_needs_milli - entry_need_milli
  cell_demand_milli = cell_demand_milli - entry_demand_milli
  cell_current = cell_current - entry_current
  cell_previous = cell_previous - entry_previous
  cell_window_demand = cell_window_demand - entry_window_demand
  if entry_need_milli > 0 then cell_active = cell_active - 1 end
  if entry_vouchers ~= 0 then cell_vouchers = cell_vouchers - entry_vouchers end
end

local function discount_pool()
  cell_allowances = cell_allowances - pool_allowance
  cell_previous = cell_previous - pool_previous
  cell_window_demand = cell_window_demand - pool_window_demand
end

-- Sets the level of the hub's own bucket.
local function fill_pool(milli)
  pool_previous = max(0, milli)
  pool_allowance = ceil(pool_previous / 1000)
  pool, pool_changed = pool_allowance > 0 or pool_window_demand > 0, true
  if pool then
    cell_allowances = cell_allowances + pool_allowance
    cell_previous = cell_previous + pool_previous
    cell_window_demand = cell_window_demand + pool_window_demand
  else
    cell_carry_milli = 0
  end
end

-- Reads the entry of the departed nodes, and takes it out of the sums. Returns whether there is one.
local function read_pool(key)
  pool, pool_previous, pool_allowance, pool_window_demand = false, 0, 0, 0
  local kept = call('HGET', key, DEPARTED_FIELD)
  if not kept then return false end
  local epoch, _, _, previous, allowance, _, _, _, demanded, _, _, _, _, _, reset_us = unpack_(kept)
  pool, pool_allowance = true, allowance
  pool_previous = (reset_us or 0) < cell_reset_us and 0 or previous
  pool_window_demand = epoch == cell_epoch and demanded or 0
  discount_pool()
  return true
end

-- Drains the hub's own bucket up to now; must be called before anything of the cell changes.
local function drain_pool(key)
  pool, pool_changed, pool_previous, pool_allowance, pool_window_demand = false, false, 0, 0, 0
  local allowances = cell_allowances - max(0, cell_vouchers)
  local pooled = cell_pooled ~= 0 and read_pool(key)
  if pooled then allowances = allowances - pool_allowance end
  local share = max(0, min(cell_capacity, rule_capacity) - allowances)
  local passed_us = max(0, refilled(cell_filled_us, hub_us))
  local drained = cell_carry_milli + passed_us * rule.quota * share / rule.capacity / window_us * 1000
  spare_milli, cell_carry_milli, rule.spare_share = floor(drained), 0, share
  if not pooled then return end
  spare_milli = max(0, floor(drained) - pool_previous)
  cell_carry_milli = drained - floor(drained)
  fill_pool(pool_previous - floor(drained))
end

-- Pours a node's bucket into the hub's, to at least the level `least`, and to no more than `Fill` in merge/bounds.py
-- allows.
local function pour(milli, own_milli, least)
  if pool then discount_pool() end
  fill_pool(min(max(pool_previous + milli, least or 0), max(fill_most_milli, pool_previous + own_milli)))
end

-- Stores the hub's own bucket if it has changed: before a scan reads all entries, and after the merge of the cell.
local function keep_pool(key)
  if not pool_changed then return end
  pool_changed = false
  if pool then
    call('HSET', key, DEPARTED_FIELD, pack(cell_epoch, hub_us, 0, pool_previous, pool_allowance, 0, 0, 0, pool_window_demand, 0, 0,
      0, 0, 0, cell_reset_us))
  else
    call('HDEL', key, DEPARTED_FIELD)
  end
end

local function clear()
  cell_silent, cell_allowances, cell_bases, cell_overdrafts, cell_debts, cell_needs_milli = 0, 0, 0, 0, 0, 0
  cell_demand_milli, cell_current, cell_previous, cell_window_demand, cell_active, cell_vouchers = 0, 0, 0, 0, 0, 0
  cell_uncovered = 0
end

local function resting()
  return cell_epoch < 0 and rule.first_hit
end

local function roll(epoch)
  local follows = epoch == cell_epoch + 1
  if rule.first_hit then
    local ended_us = cell_epoch < 0 and -cell_epoch or cell_epoch + window_us
    follows = abs(epoch) - ended_us < window_us
  end
  if not (follows and resting()) then cell_last_demand = follows and cell_window_demand or 0 end
  cell_window_demand, cell_scanned_us = 0, 0
  if fixed then
    cell_allowances, cell_debts, cell_current, cell_silent, cell_uncovered = cell_bases, 0, 0, 0, 0
    cell_first, cell_reserved = '', 0
  elseif sliding then
    cell_previous = follows and cell_current or 0
    cell_current = 0
  end
  cell_epoch = epoch
end

-- Follows a reset that the report brings, unless it is impossibly far ahead.
local function follow_reset()
  local RESET_AHEAD_MAX_US -- from merge/bounds.py
  if report_reset_us > hub_us + RESET_AHEAD_MAX_US then report_reset_us = cell_reset_us end
  if report_reset_us > cell_reset_us then
    cell_reset_us, cell_previous, cell_debts, cell_fill_milli, cell_scanned_us = report_reset_us, 0, 0, 0, 0
    cell_uncovered = 0
    if not bucket then cell_current = 0 end
  end
end

-- The answer, piece by piece: its header, which is written last, and a row for each cell.
-- The rows are made in any order; `place` is where the current one belongs.
local pieces, place, rows_answered, wide, row_format = { '' }, 1, 0, false, ANSWER

local function widen()
  for position = 2, #KEYS - 2 do
    local row = pieces[position]
    if row then pieces[position] = to_bytes(ANSWER_WIDE, from_bytes(ANSWER, row)) end
  end
  wide, row_format = true, ANSWER_WIDE
end

-- The most that may stay of `amount`, a part of `sum`, so that the sum fits into `room`.
local function within(amount, sum, room)
  return max(0, amount - max(0, sum - room))
end

local function cell_answer()
  local SEALED -- from hub/report.py
  local allowance, base, overdraft, capacity = entry_allowance, entry_base, entry_overdraft, cell_capacity + lent
  local free, reserved = capacity - cell_allowances - cell_debts, cell_reserved
  local current, previous, silent = cell_current, cell_previous, cell_silent
  local needs_milli, demand_milli, last_demand = cell_needs_milli, cell_demand_milli, cell_last_demand
  local window_demand = cell_window_demand
  if free < 0 then free = 0 end
  if cell_allowances > capacity then allowance = within(allowance, cell_allowances, capacity) end
  if cell_bases > cell_capacity then base = within(base, cell_bases, cell_capacity) end
  if rule.overshoot_milli >= 0 then
    overdraft = within(overdraft, cell_overdrafts, floor(cell_capacity * rule.overshoot_milli / 1000))
  end
  if cell_first == node then reserved = 0 end
  local nodes = cell_active
  if forgotten then nodes, allowance, base, overdraft = FORGOTTEN, 0, 0, 0 end
  if at_hub then
    nodes = cell_active + AT_HUB
    if sliding then allowance = min(entry_current + granted, capacity) elseif bucket then allowance = min(granted, allowance) end
    if sliding or sealed then base = min(sealed, base) elseif small or entry_sealed ~= 0 then base = 0 end
    if fixed and sealed then nodes = nodes + SEALED end
    if float_held then current = current + float_vouchers end
  elseif sliding then
    base = min(sealed, base)
  elseif entry_sealed ~= 0 then
    base = 0
  end
  if bucket then
    current = min(ceil(cell_fill_milli), WHOLE_MAX)
  elseif dated then
    current = current + previous
    previous = rule.lasts_until_us == WHOLE_MAX and 0 or max(0, rule.lasts_until_us - hub_us)
  end
  if not wide then
    local all = allowance + base + overdraft + capacity + free + reserved + current + previous + silent + needs_milli
      + demand_milli + last_demand + window_demand
    if all > NARROW_MAX or current < 0 then widen() end
  end
  pieces[place] = to_bytes(row_format, cell_epoch, allowance, base, overdraft, capacity, free, reserved, current, previous,
    silent, needs_milli, demand_milli, nodes, last_demand, window_demand, cell_reset_us)
end

-- ------------------------------------------------------------------ merge/sealing.py

local heard_of, note_opening, opened_before, set_own_aside, set_aside, open_share, is_closed, unsure, raise_share
do
  local SEALED_AFTER_S, SEALED_INTERVALS -- from hub/headroom.py
  local sealed_after_us = SEALED_AFTER_S * 1000000

  -- The new record of the batch's node; `before` is the last one.
  function heard_of(before)
    local APART_KEPT_US, AHEAD_US -- from merge/sealing.py
    local heard_us = batch.heard_us > 0 and batch.heard_us or hub_us
    local heard = {
      hub_us, batch.sequence, batch.interval_us, batch.lease_us, batch.leaving and 1 or 0, heard_us, 0, 0, 0
    }
    if not before then return heard end
    local opened_us, from_us, until_us = before[6] + sealed_after_us, before[7], before[8]
    heard[7], heard[8], heard[9] = from_us, until_us, before[9]
    if opened_us <= hub_us + AHEAD_US and heard_us > before[6] then
      heard[7] = hub_us - until_us <= APART_KEPT_US and from_us or opened_us
      heard[8], heard[9] = hub_us + AHEAD_US, heard_us
    end
    return heard
  end

  function opened_before(record, until_us)
    return not record or record[6] + sealed_after_us <= until_us
  end

  function note_opening(record)
    local until_us = record[1] + record[4]
    if record[5] == 1 and hub_us <= until_us then return end
    if hub_us <= until_us then
      meta.opens_us = min(meta.opens_us, record[6] + sealed_after_us)
    elseif opened_before(record, until_us) then
      meta.apart_until_us = max(meta.apart_until_us, until_us)
    end
    meta.apart_until_us = max(meta.apart_until_us, record[8])
  end

  -- Whether a node may open its shares in the cell's window or the next.
  local function is_apart(record)
    return record[6] + sealed_after_us <= cell_epoch * window_us
  end

  -- Makes an opened share the allowance of the current entry. Returns whether that changes the entry.
  function set_aside()
    if entry_base <= entry_allowance then return false end
    entry_allowance, entry_vouchers = entry_base, 0
    entry_debt = min(entry_debt, max(0, ceil(used_of(entry_current, entry_previous)) - entry_allowance))
    return true
  end

  -- The same for the batch's node, which may hear no answer.
  function set_own_aside()
    if rule.sets_aside and is_apart(batch.record) then set_aside() end
  end

  -- Whether use of a share that a node may have opened can count in the cell's window.
  local function may_have_opened(record)
    if not record or is_apart(record) then return true end
    local begins_us, from_us, until_us = cell_epoch * window_us, record[7], record[8]
    if entry_seen_us >= record[9] + (fixed and 1 or 0) then return false end
    for steps = 0, fixed and 0 or 2 do
      local each_us = begins_us - steps * window_us
      if from_us <= each_us and each_us < until_us then return true end
    end
    return false
  end

  -- The same for a node whose use of an opened share may count in the cell's window.
  function open_share(record)
    return entry_base ~= 0 and rule.sets_aside and may_have_opened(record) and set_aside()
  end

  -- Whether a node certainly begins the cell's fixed window without its base, which is a sealed share.
  function is_closed(record)
    return entry_sealed ~= 0 and rule.seals and not may_have_opened(record)
  end

  -- Whether other nodes may have opened shares that the cell's allowances do not contain.
  function unsure()
    local begins_us = cell_epoch * window_us
    if not rule.sets_aside or cell_bases == 0 or cell_scanned_us >= begins_us then return false end
    return meta.opens_us <= begins_us or begins_us - 2 * window_us < meta.apart_until_us
  end

  -- Raises the node's share. Returns the share to answer.
  function raise_share()
    local SEALED_REQUESTS -- from merge/sealing.py
    local shares = rule.shares
    if not shares then return entry_base end
    local demand = cell_last_demand + cell_window_demand + report_window_demand
    if entry_base == 0 and demand < SEALED_REQUESTS * cell_unit then return 0 end
    local part, whole = floor(cell_capacity / (#shares + 1)), 0
    for _, share in ipairs(shares) do whole = whole + max(part, share) end
    if cell_capacity > part + whole then part = part + 1 end
    local lasting = sliding and cell_allowances + cell_debts - float_held or 0
    if sliding or report_epoch == cell_epoch then
      entry_base = max(entry_base, min(part, cell_capacity - cell_bases - lasting))
    end
    return min(entry_base, part)
  end
end

-- ------------------------------------------------------------------ merge/rule.py

-- Limits the level that a node reports of its bucket; see `Fill` in merge/bounds.py.
local function keep_fill_within_bounds()
  fill_most_milli = max(rule.fill_max_milli, 1000 * DEBT_MAX * entry_capacity)
  local there = pool and pool_previous or 0
  report_previous = min(report_previous, max(fill_most_milli - there, entry_previous))
end

local function welcome(key)
  if bucket then keep_fill_within_bounds() end
  entry_allowance, entry_base, entry_overdraft = report_allowance, dated and 0 or report_base, report_overdraft
  entry_sealed = fixed and report_floats and 1 or 0
  if fixed and report_epoch < cell_epoch then entry_allowance = is_closed(batch.record) and 0 or report_base end
  if bucket and report_floats then
    pour(0, 0, 1000 * cell_capacity)
    entry_current = report_current
  elseif bucket then
    entry_current = report_current - ceil(report_previous / 1000)
  end
  if report_allowance > 0 or entry_base > 0 or report_overdraft > 0 then
    -- 1 is ADOPTED_US in merge/rule.py.
    cell_learn_until_us = max(cell_learn_until_us, hub_us + learning_us(rule, meta.born_us ~= 1))
  end
end

local function lower()
  open_share(batch.record)
  if bucket then keep_fill_within_bounds() end
  if report_allowance < entry_allowance and (not fixed or report_epoch == cell_epoch) then entry_allowance = report_allowance end
  entry_vouchers, entry_sealed = 0, fixed and report_floats and 1 or 0
  if report_base < entry_base then entry_base = report_base end
end

local function take_counts(key)
  local same_epoch = report_epoch == cell_epoch
  local counted = report_reset_us >= cell_reset_us
  if bucket then
    local drained = refilled(cell_filled_us, hub_us) * rule.quota * 1000 / window_us
    local charged = counted and (report_current - entry_current) * 1000 or 0
    local left = max(0, cell_fill_milli - drained)
    cell_fill_milli = min(max(0, left + charged), max(left, fill_most_milli))
    cell_filled_us = hub_us
    if report_floats then
      if counted then pour(charged + report_previous, entry_previous) end
      entry_previous = 0
    else
      entry_previous = counted and report_previous or 0
    end
    entry_current = report_current
  elseif dated then
    entry_current = counted and report_current or 0
    entry_current_until_us = hub_us + min(report_previous, rule.counts_for_us)
    entry_previous_until_us = hub_us + min(report_base, rule.counts_for_us)
  elseif same_epoch then
    entry_current = counted and report_current or 0
    entry_previous = counted and not fixed and report_previous or 0
  elseif report_epoch == cell_epoch - 1 and counted and not fixed then
    entry_previous = report_current
  end
  local used = used_of(entry_current, entry_previous)
  entry_debt = used > entry_allowance and ceil(used) - entry_allowance or 0
  if report_overdraft < entry_overdraft then
    entry_overdraft = min(entry_overdraft, max(report_overdraft, entry_debt))
  end
  entry_need_milli, entry_demand_milli = report_need_milli, report_demand_milli
  entry_window_demand = same_epoch and report_window_demand or 0
  if report_ask > 0 and entry_allowance - used < report_ask then
    if entry_ask == 0 then entry_ask_since_us = hub_us end
    entry_ask = report_ask
  else
    entry_ask = 0
  end
  entry_seen_us, entry_capacity, entry_lease_us = hub_us, rule_capacity, rule.entry_lease_us
  if rule_capacity < cell_capacity then cell_capacity = rule_capacity end
  return used
end

-- How many nodes may receive requests for the key, including this one.
local function nodes_of()
  local NODES_MIN, JOINING -- from merge/asking.py
  local nodes = max(cell_active + 1, cell_last_demand == 0 and meta.live or min(meta.live, NODES_MIN))
  return batch.sequence <= JOINING and max(nodes, 2) or nodes
end

local raise_base, grant
do -- Lua allows a function 200 local variables
  local function raise(target, pool, used, free)
    local head = entry_allowance - used
    if entry_ask <= 0 or entry_ask > pool then
      if free <= 0 or target <= head then return 0 end
      local wanted = ceil(target - head)
      return wanted > free and free or wanted
    end
    local wanted = ceil(target - head)
    if cell_first == '' then wanted = max(wanted, ceil(entry_ask - head)) end
    local raised = max(0, min(wanted, free))
    if head + raised >= entry_ask then return raised end
    if cell_first == '' then
      cell_first, cell_reserved = node, ceil(entry_ask - head)
    end
    return 0
  end

  local function headroom_max(need, left)
    local HEADROOM_FRACTION -- from hub/headroom.py
    local most = HEADROOM_FRACTION * left
    if most < 1 then most = 1 end
    return most > need and most or need
  end

  function raise_base()
    if not fixed or rule.slots or report_epoch ~= cell_epoch or entry_need_milli == 0 then return end
    if entry_base > 0 and entry_sealed ~= 0 then return end
    local own, need = cell_capacity, entry_need_milli / 1000
    local share = need / ((cell_needs_milli + entry_need_milli) / 1000)
    if report_asked > 0 or own * share >= 1 then
      local start = own * share
      if rule_small_allowances then
        local headroom = headroom_max(need, own)
        if start > headroom then start = headroom end
      end
      if start > entry_base then
        entry_base = entry_base + max(0, min(ceil(start) - entry_base, own - cell_bases - entry_base))
      end
      entry_sealed = 0
    end
  end

  function grant(used)
    local TAKEN_AT_ONCE -- from merge/granting.py
    local capacity, own = cell_capacity + lent, cell_capacity
    if bucket then
      entry_allowance = entry_allowance + max(0, min(entry_debt, capacity - cell_allowances - entry_allowance))
      entry_debt = max(0, ceil(used) - entry_allowance)
    end
    if entry_need_milli == 0 then return end
    local need, needs = entry_need_milli / 1000, (cell_needs_milli + entry_need_milli) / 1000
    local share = need / needs
    local pool = capacity - (used_of(cell_current, cell_previous) + used) - cell_silent
    if pool < 0 then pool = 0 end
    if not fixed or (report_epoch == cell_epoch and not resting()) then
      local free, target = capacity - cell_allowances - cell_debts - entry_allowance - cell_reserved, pool * share
      if sliding and cell_bases > 0 then free = free - cell_bases - lent end
      local asks = report_asked >= ASKS and report_asked < ASKS + FLOATS + FLOATS
      if pool >= needs then
        local most = entry_allowance - used + ceil(TAKEN_AT_ONCE * free)
        local SLACK_KEPT, SLACK_FADING, SLACK_FADING_ASKED, SLACK_ASKED, PLENTY -- from hub/headroom.py
        local slack = SLACK_KEPT
        local scarce = asks and not (rule.may_be_silent and pool - needs >= PLENTY * capacity)
        if fixed then slack = scarce and SLACK_ASKED or SLACK_KEPT
        elseif not dated then slack = scarce and SLACK_FADING_ASKED or SLACK_FADING end
        target = need + slack * (pool - needs) * share
        if target > most then target = most > need and most or need end
        if rule_small_allowances then
          local headroom = headroom_max(need, pool)
          if target > headroom then target = headroom end
        end
      end
      if asks and not rule.slots then
        local to_come = nodes_of() - cell_active
        if to_come > 1 then
          local most = max(entry_allowance - used + max(0, ceil(free / to_come)), (report_asked - ASKS) % FLOATS)
          if target > most then target = most end
        end
      end
      local left = rule.slots and capacity or pool
      if report_asked > 0 or target >= 1 or (entry_ask > 0 and entry_ask <= left) then
        entry_allowance = entry_allowance + raise(target, left, used, free)
        entry_debt = used > entry_allowance and ceil(used) - entry_allowance or 0
      end
    end
    if fixed then raise_base() end
    if rule_overdrafts > 0 then
      local overdrafts, nodes = rule_overdrafts, cell_active + 1
      if own < rule_capacity then overdrafts = floor(own * rule.overshoot_milli / 1000) end
      local beyond = cell_allowances + entry_allowance + cell_uncovered + max(0, entry_debt - entry_overdraft) - capacity
      if beyond > 0 then overdrafts = overdrafts - beyond end
      local part = overdrafts / nodes
      if rule_small_allowances then
        local OVERDRAFT_FRACTION -- from hub/headroom.py
        local most = OVERDRAFT_FRACTION * own
        if most < 1 then most = 1 end
        if part > most then part = most end
      end
      if entry_overdraft + 1 <= part then
        local wanted = floor(part) - entry_overdraft
        local free = ceil(TAKEN_AT_ONCE * (overdrafts - cell_overdrafts - entry_overdraft))
        if wanted > free then wanted = free end
        if wanted > 0 then entry_overdraft = entry_overdraft + wanted end
      end
    end
  end
end

-- ------------------------------------------------------------------ merge/asking.py

local hear_ask
do -- Lua allows a function 200 local variables
  -- Whether the free capacity of the cell is too scarce to be granted to this node in advance, and stays at the hub.
  local function stays_at_hub()
    local SMALL, SMALL_BUCKET, TIGHT_FIXED, TIGHT, CHEAP -- from merge/asking.py
    local nodes = nodes_of()
    if entry_base > 0 and rule.seals and (sliding or entry_sealed ~= 0) and hub_us < max(cell_learn_until_us, rule_learns_until_us) then nodes = max(nodes, 2) end
    if nodes < 2 or rule.overshoot_milli < 0 then return false end
    if (bucket and rule.quota or cell_capacity) * rule.interval_us > CHEAP * nodes * cell_unit * window_us then return false end
    small = cell_capacity < SMALL * nodes * cell_unit
    if small or (bucket and cell_capacity < SMALL_BUCKET * nodes * cell_unit) then return true end
    local used = used_of(cell_current, cell_previous) + used_of(entry_current, entry_previous)
    return cell_capacity - used - cell_silent < (fixed and TIGHT_FIXED or TIGHT) * nodes * cell_unit
  end

  -- Updates the mean cost of requests from one that waits.
  local function note_cost(reported)
    local UNIT_WEIGHT -- from merge/asking.py
    local cost = min(report_ask, reported)
    if cost <= 0 then return end
    cell_unit = cell_unit == 1 and cost or cell_unit + floor((cost - cell_unit) / UNIT_WEIGHT)
  end

  -- Processes a request for a quota that is kept at the hub. Returns the node's use.
  function hear_ask(key, used)
    at_hub, waiting, granted, float_held, held, sealed = false, 0, 0, nil, 0, sliding and 0
    local SEALED_AFTER_S, SEALED_INTERVALS -- from hub/headroom.py
    rule.shares, rule.deals = nil, rule.seals and SEALED_INTERVALS * batch.interval_us <= SEALED_AFTER_S * 1000000
    local deals = rule.deals
    if fixed then rule.deals = false end -- other keys begin windows with bases
    if report_asked < ASKS or report_asked >= ASKS + FLOATS + FLOATS then return used end
    local reported = (report_asked - ASKS) % FLOATS
    note_cost(reported)
    if batch.leaving or not stays_at_hub() then return used end
    at_hub, waiting = true, reported
    if fixed then rule.deals = deals and report_floats and (small or entry_base > 0) end
    if not bucket then
      if not rule.slots then entry_ask = 0 end
      return used
    end
    held = entry_allowance
    pour(entry_previous, entry_previous)
    entry_previous, entry_debt = 0, 0
    if cell_allowances - pool_allowance - max(0, cell_vouchers) == 0 then entry_ask = 0 end
    return 0
  end
end

-- Whether the free capacity can only be found by reading all entries.
local function needs_all(used)
  if fixed and rule.deals then
    local part = floor(cell_capacity / (cell_active + 1))
    return entry_base > part + 1 or entry_base <= part and cell_bases + entry_base < cell_capacity
  end
  if waiting == 0 or not sliding then return false end
  local capacity = cell_capacity + lent
  if capacity - cell_allowances - cell_debts - cell_reserved - max(entry_allowance, ceil(used)) >= waiting then return false end
  return capacity - used_of(cell_current, cell_previous) - used >= 1
end

local known_records
local function all_records()
  if not known_records then
    known_records = {}
    local fields = call('HGETALL', KEYS[2])
    for position = 1, #fields, 2 do known_records[fields[position]] = unpack_(fields[position + 1]) end
  end
  return known_records
end

local grant_asked
do
  local function grant_waiting(used, capacity)
    if waiting == 0 or (fixed and (report_epoch ~= cell_epoch or resting())) then return end
    local others = cell_allowances + cell_debts
    if float_held then others = others - float_held + used_of(float_current, float_previous) end
    if bucket and pool then others = others - pool_allowance + pool_previous / 1000 end
    local room = floor(capacity - others - cell_reserved - max(entry_allowance, used))
    granted = max(0, min(room >= report_ask and waiting or waiting - report_ask, room))
    if granted == 0 then
      if entry_ask > 0 and cell_first == '' then cell_first, cell_reserved = node, entry_ask end
      return
    end
    entry_ask = 0
    entry_vouchers = (floats() or bucket and held == 0) and granted or 0
    entry_allowance = max(entry_allowance, ceil(used)) + granted
    entry_debt = 0
  end

  -- Whether the sealed shares that nodes have reported may be granted although the hub is still learning.
  local shortest_lease_us -- of all known nodes; nil until a cell has needed it
  local function knows_shares()
    if rule.overshoot_milli ~= 0 or meta.born_us == 1 then return false end -- 1 is ADOPTED_US in merge/rule.py
    if fixed or hub_us < meta.born_us + rule.counts_for_us + learning_us(rule, false) then return false end
    if not shortest_lease_us then
      shortest_lease_us = batch.lease_us
      for _, record in pairs(all_records()) do shortest_lease_us = min(shortest_lease_us, record[4]) end
    end
    return hub_us >= cell_learn_until_us - shortest_lease_us
  end

  -- While the hub `learns`, leaves the node its share, and grants no more in all than the shares of known nodes; of a
  -- fixed window nothing.
  function grant_asked(used, grants, learns)
    if not learns then
      if rule.deals then sealed = raise_share() elseif not small then raise_base() end
      grant_waiting(used, cell_capacity + lent)
    elseif rule.deals and not batch.leaving then
      sealed = entry_base
      if grants and at_hub and entry_base > 0 and knows_shares() then grant_waiting(used, min(cell_capacity, cell_bases + entry_base)) end
    end
  end
end

-- The sums of the entries that depart in this scan; in Python, the entry into which they are folded.
local departed
local function fold()
  if not departed then
    departed = { current = 0, previous = 0, allowance = 0, window_demand = 0, current_us = 0, previous_us = 0 }
  end
  if not bucket then departed.current = departed.current + entry_current end
  departed.previous = departed.previous + entry_previous
  departed.allowance = departed.allowance + entry_allowance
  departed.window_demand = departed.window_demand + entry_window_demand
  departed.current_us = max(departed.current_us, entry_current_until_us)
  departed.previous_us = max(departed.previous_us, entry_previous_until_us)
end

-- Stores the sums of departed entries as the entry of the departed nodes. Returns whether there is anything to store.
local function bury(key, kept)
  local seen_us = hub_us
  if kept then
    read_entry(kept)
    catch_up()
    if dated then expire() end
    fade()
    if not departed or departed.allowance == 0 then seen_us = entry_seen_us end
    fold()
  end
  new_entry()
  entry_seen_us = seen_us
  entry_current, entry_previous, entry_allowance = departed.current, departed.previous, departed.allowance
  entry_window_demand = departed.window_demand
  entry_current_until_us, entry_previous_until_us = departed.current_us, departed.previous_us
  departed, pool = nil, false
  if empty() then return false end
  call('HSET', key, DEPARTED_FIELD, written_entry())
  count()
  pool, pool_previous, pool_allowance, pool_window_demand = true, entry_previous, entry_allowance, entry_window_demand
  return true
end

-- Adds the current entry, of a node that forgets the key, to the entry of the departed nodes.
local function take_over(key)
  depart(hub_us)
  fold()
  keep_pool(key)
  local kept = call('HGET', key, DEPARTED_FIELD)
  if kept then
    read_entry(kept)
    if entry_epoch ~= cell_epoch or entry_reset_us < cell_reset_us then catch_up() end
    discount()
  end
  if bury(key, kept) then
    if not bucket then cell_restless = 1 end
  elseif kept then
    call('HDEL', key, DEPARTED_FIELD)
  end
end

-- Sums up all entries anew except the node's own, which is still to be granted its allowances. Meanwhile the others are
-- the current entry, one after the other.
local function scan_others(key, fields)
  local capacity, first, first_since_us, shortfall = rule_capacity, '', 0, 0
  if entry_ask > 0 then first, first_since_us = node, entry_ask_since_us end
  local lives_us, records, kept, gone, lingers = rule.lives_us, all_records(), nil, {}, false
  for position = 1, #fields, 2 do
    local name = fields[position]
    if name == DEPARTED_FIELD then
      kept = fields[position + 1]
    elseif name ~= 'g' and name ~= node and name ~= LOANS then
      read_entry(fields[position + 1])
      local changed, record = entry_epoch ~= cell_epoch or entry_reset_us < cell_reset_us, records[name]
      if changed then catch_up(is_closed(record)) end
      if dated and expire() then changed = true end
      if sliding then -- the faded part of a floating allowance, and of a debt, is given back
        local used, allowance, debt = ceil(used_of(entry_current, entry_previous)), entry_allowance, entry_debt
        if entry_vouchers > 0 then entry_allowance = min(allowance, used + entry_vouchers) end
        entry_debt = min(debt, max(0, used - entry_allowance))
        if entry_allowance < allowance or entry_debt < debt then changed = true end
      end
      if open_share(record) then changed = true end
      local seen_us, lease_us, interval_us, left = entry_seen_us, batch.lease_us, batch.interval_us, false
      if record then
        interval_us, lease_us, left = record[3], record[4], record[5] == 1
        if record[1] > seen_us then seen_us = record[1] end
      end
      if entry_lease_us > 0 then lease_us = min(lease_us, entry_lease_us) end
      local unheard_us = hub_us - entry_seen_us
      local outlived = unheard_us > lives_us and unheard_us > time_to_live(rule, lease_us, interval_us)
      if left and not rule.slots or hub_us - seen_us > lease_us or outlived then
        if left and entry_allowance == 0 and entry_overdraft <= entry_debt then entry_overdraft = 0 end
        if rule.sets_aside and opened_before(record, seen_us + lease_us) then set_aside() end
        local held = entry_allowance > 0 or entry_overdraft > 0
        local idle_us = held and seen_us + lease_us or entry_seen_us
        depart(idle_us)
        if bucket then
          local passed_us = max(0, refilled(idle_us, hub_us))
          local drained = passed_us * rule.quota * rule.spare_share / rule.capacity / window_us * 1000
          local spent_milli = min(spare_milli, floor(drained), entry_previous)
          entry_previous, spare_milli = entry_previous - spent_milli, spare_milli - spent_milli
          entry_allowance = ceil(entry_previous / 1000)
        end
        fold()
        gone[#gone + 1] = name
      else
        if hub_us - seen_us > silent_after_us(max(interval_us, rule.own_interval_us)) then
          changed = true
          entry_need_milli, entry_demand_milli, entry_ask = 0, 0, 0
          cell_silent = cell_silent + max(0, entry_allowance - floor(used_of(entry_current, entry_previous)))
        end
        lingers = lingers or left -- its work in progress may go on
        if entry_capacity < capacity then capacity = entry_capacity end
        local since_us = entry_ask_since_us
        local earlier = first == '' or since_us < first_since_us or (since_us == first_since_us and name < first)
        if entry_ask > 0 and earlier then
          first, first_since_us = name, since_us
          shortfall = max(0, ceil(entry_ask - (entry_allowance - used_of(entry_current, entry_previous))))
        end
        count()
        if rule.seals and (entry_base > 0 or entry_need_milli > 0) then rule.shares[#rule.shares + 1] = entry_base end
        if floats() then add_floating() end
        if changed then call('HSET', key, name, written_entry()) end
      end
    end
  end
  local buried = (departed or kept) and bury(key, kept)
  if buried and sliding then add_floating() end
  if kept and not buried then gone[#gone + 1] = DEPARTED_FIELD end
  if #gone > 0 then call('HDEL', key, unpack(gone)) end
  cell_capacity, cell_first, cell_reserved = capacity, first, shortfall
  cell_restless = (buried and not bucket or first ~= '' or cell_silent > 0 or lingers) and 1 or 0
end

-- Reads all entries and sums them up anew. `own` is how many strings of the cell's hash are its sums and this node's
-- entry; if there are no more, there is no other node.
local function scan(key, own)
  cell_scanned_us = hub_us
  if bucket then keep_pool(key) end
  clear()
  float_held, float_current, float_previous, float_vouchers = 0, 0, 0, 0
  if rule.seals then rule.shares = {} end
  if dated then
    expire()
    cell_filled_us = WHOLE_MAX
  end
  local fields = (own > 0 or rule.withheld > 0 or bucket and pool) and call('HGETALL', key) or {}
  scans_left = scans_left - (#fields - own) / 2
  if #fields == own then
    local asks = entry_ask > 0
    cell_capacity, cell_first, cell_reserved, cell_restless = rule_capacity, asks and node or '', 0, asks and 1 or 0
    return
  end
  local epoch, seen_us, current, previous, allowance, base, overdraft =
    entry_epoch, entry_seen_us, entry_current, entry_previous, entry_allowance, entry_base, entry_overdraft
  local need_milli, demand_milli, window_demand, capacity =
    entry_need_milli, entry_demand_milli, entry_window_demand, entry_capacity
  local debt, ask, ask_since_us, reset_us, current_until_us, previous_until_us, lease_us, vouchers, is_sealed =
    entry_debt, entry_ask, entry_ask_since_us, entry_reset_us, entry_current_until_us, entry_previous_until_us,
    entry_lease_us, entry_vouchers, entry_sealed
  scan_others(key, fields)
  entry_epoch, entry_seen_us, entry_current, entry_previous, entry_allowance, entry_base, entry_overdraft =
    epoch, seen_us, current, previous, allowance, base, overdraft
  entry_need_milli, entry_demand_milli, entry_window_demand, entry_capacity =
    need_milli, demand_milli, window_demand, capacity
  entry_debt, entry_ask, entry_ask_since_us, entry_reset_us, entry_current_until_us, entry_previous_until_us,
    entry_lease_us, entry_vouchers, entry_sealed =
    debt, ask, ask_since_us, reset_us, current_until_us, previous_until_us, lease_us, vouchers, is_sealed
end

local wants_scan
do -- Lua allows a function 200 local variables
  -- Whether a scan is due; called when the last one is at least an interval ago, or when there was none.
  local function due(scanned_ago_us)
    local CALM_INTERVALS -- from merge/rule.py
    if cell_scanned_us == 0 or scanned_ago_us < 0 then return true end
    if scanned_ago_us >= CALM_INTERVALS * rule.interval_us then return true end
    return cell_restless ~= 0 or dated or cell_first ~= '' or entry_ask > 0 or cell_capacity < rule_capacity
      or cell_scanned_us <= stirred_us or hub_us > calm_us
  end

  -- Whether all entries must be read now, and whether capacity may be granted: not if that is uncertain without a scan.
  function wants_scan(used)
    local uncertain, scanned_ago_us = unsure(), hub_us - cell_scanned_us
    if scans_left <= 0 then return false, not uncertain end
    local long_ago = scanned_ago_us < 0 or scanned_ago_us >= rule.interval_us or cell_scanned_us == 0
    return uncertain or long_ago and due(scanned_ago_us) or needs_all(used), true
  end
end

local function epoch_of(known)
  if rule.first_hit then return first_hit_epoch(report_epoch, known or -1, report_ask > 0) end
  if rule.closes_us > 0 then return calendar_epoch(report_epoch, known) end
  return report_epoch == rule.epoch + 1 and not rule.stepwise and report_epoch or rule.epoch
end

local new_cell
do -- Lua allows a function 200 local variables
  local function withhold(key)
    new_entry()
    entry_seen_us, entry_previous, entry_allowance = hub_us, 1000 * rule.withheld, rule.withheld
    call('HSET', key, DEPARTED_FIELD, written_entry())
    cell_fill_milli, cell_pooled = 1000 * rule.withheld, 1
    count()
  end

  function new_cell(key, epoch)
    cell_epoch, cell_capacity, cell_filled_us = epoch, rule_capacity, hub_us
    cell_fill_milli, cell_reset_us, cell_scanned_us, cell_learn_until_us, cell_expires_us = 0, 0, 0, 0, 0
    cell_last_demand = 0
    cell_first, cell_reserved, cell_restless = '', 0, 0
    cell_pooled, cell_carry_milli, cell_unit, cell_uncovered = 0, 0, 1, 0
    clear()
    if rule.withheld > 0 then withhold(key) end
  end
end

-- Returns the amount that is lent now, and whether any loan lasts.
local function lent_by(packed)
  local amount, lasting, loans = 0, false, { unpack_(packed) }
  for position = 2, #loans, 4 do
    if loans[position + 2] > hub_us then
      amount, lasting = amount + loans[position + 1], true
    end
  end
  return amount, lasting
end

-- Returns how many cells are on the list of wishes for loans, after adding `more`; `redis/lending.py` counts them anew.
local function count_listed(more)
  local listed = tonumber(call('HGET', KEYS[1], 'listed') or 0) + more
  if more ~= 0 then call('HSET', KEYS[1], 'listed', max(0, listed)) end
  return listed
end

local function strike_off(name)
  if call('HDEL', KEYS[1], name) > 0 then count_listed(-1) end
end

-- Puts the cell on the list of those that need a loan, or takes it off. See merge/loans.py.
local function look(key, listed, lasting)
  local PACES, WISHES_MAX -- from merge/loans.py
  local name = string.sub(key, #KEYS[1] - 3)
  local used = ceil(used_of(cell_current, cell_previous))
  local carrying_milli = cell_demand_milli * window_us / 1000000 * rule.capacity / rule.quota
  local wanting = cell_reserved > 0 or used * 1000 + cell_needs_milli > cell_capacity * 1000
    or carrying_milli > cell_capacity * 1000
  if not (wanting or lasting) then
    if listed then
      call('HDEL', key, LOANS)
      strike_off(name)
    end
  elseif listed or count_listed(0) < WISHES_MAX then
    if not listed then call('HSET', key, LOANS, pack(0)) end
    local added = call('HSET', KEYS[1], name, pack(rule.name, rule.capacity, rule.quota, window_us, cell_capacity, used,
      cell_needs_milli, cell_demand_milli, cell_reserved, 2 * rule.counts_for_us + PACES * rule.interval_us, hub_us))
    if added > 0 then count_listed(1) end
  end
end

-- Answers that the hub has no room for a key.
local function not_taken(epoch)
  local NOT_TAKEN -- from hub/report.py
  if not wide and rule_capacity > NARROW_MAX then widen() end
  pieces[place] = to_bytes(row_format, epoch, 0, 0, 0, rule_capacity, 0, 0, 0, 0, 0, 0, 0, NOT_TAKEN, 0, 0, 0)
end

-- Whether the cell could be deleted without loss, as far as its sums show.
local function forgettable()
  if cell_allowances ~= 0 or cell_current ~= 0 or cell_previous ~= 0 or cell_needs_milli ~= 0 then return false end
  if rule.withheld > 0 or hub_us < cell_learn_until_us or cell_fill_milli > 0 then return false end
  if rule.first_hit then
    if abs(cell_epoch) > hub_us - (cell_epoch >= 0 and window_us or 0) then return false end
  elseif cell_epoch > (rule.elsewhere and calendar_epoch(-1) or rule.epoch) then
    return false -- it has followed a node into a window that has yet to open
  end
  return cell_reset_us == 0 or hub_us - cell_reset_us > rule.counts_for_us
end

-- Whether the cell holds nothing but its sums and this node's entry. The entries read count as scanned; when no more
-- may be read, the cell stays until a later batch, or until it expires.
local function no_other_node(key)
  if scans_left <= 0 then return false end
  local fields, alone = call('HGETALL', key), true
  for position = 1, #fields, 2 do
    local field = fields[position]
    if field ~= 'g' and field ~= node then
      alone = false
      if field ~= LOANS then scans_left = scans_left - 1 end
    end
  end
  return alone
end

-- Cuts the reported amounts down to the largest that have an effect; see merge/bounds.py. `if` costs less than calls of
-- min.
local function keep_within_bounds()
  local capacity = rule.capacity
  if rule.slots then
    report_epoch, report_previous, report_base, report_window_demand, report_reset_us = 0, 0, 0, 0, 0
  end
  if report_current > SAID_MAX then
    report_current = SAID_MAX
  elseif report_current < 0 then
    report_current = bucket and max(-SAID_MAX, report_current) or 0
  end
  if report_previous > SAID_MAX and not (bucket or dated) then report_previous = SAID_MAX end
  if report_allowance > capacity then report_allowance = capacity end
  local base_max = dated and report_previous or capacity
  if report_base > base_max then report_base = base_max end
  if report_overdraft > rule.overdraft_max then report_overdraft = rule.overdraft_max end
  if report_need_milli > rule.need_max_milli then report_need_milli = rule.need_max_milli end
  if report_ask > rule.ask_max then report_ask = 0 end
  if report_demand_milli > SAID_MAX then report_demand_milli = SAID_MAX end
  if report_window_demand > SAID_MAX then report_window_demand = SAID_MAX end
  report_floats = report_asked >= ASKS + FLOATS and report_asked < ASKS + FLOATS + FLOATS and (bucket or fixed and rule.seals)
end

-- Whether the report may be a node's last one of a key: it holds nothing and needs nothing, see hub/report.py.
local function is_farewell()
  return report_allowance == 0 and report_base == 0 and report_overdraft == 0 and report_need_milli == 0
    and report_demand_milli == 0
end

-- ------------------------------------------------------------------ merge/recalling.py

local note_lack, recalls_since
do -- Lua allows a function 200 local variables
  -- The caller's key in the name of a cell: behind the shard's prefix, and the limit's name, algorithm and window.
  local function key_in(name)
    local ends = #KEYS[1] + #rule.name - 1
    for _ = 1, 3 do ends = ends and string.find(name, ':', ends + 1, true) end
    return ends and string.sub(name, ends + 1)
  end

  -- The recalls of the shard, the latest last: when each was noted, by which node, the limit, the key and all needs.
  local function recalls()
    if type(meta.recalls) ~= 'table' then meta.recalls = meta.recalls and unpack_(meta.recalls) or {} end
    return meta.recalls
  end

  -- Whether the node lacks what other nodes hold and do not need.
  local function lacks()
    local NEED_MARGIN, REQUESTS_MIN -- from hub/headroom.py
    local NEEDS_LACKED, SURPLUS -- from merge/recalling.py
    if batch.leaving or forgotten or rule.overshoot_milli < 0 or dated or rule.slots then return false end
    if cell_capacity < REQUESTS_MIN * cell_active then return false end
    local used, lacked_milli = used_of(entry_current, entry_previous), 0
    if at_hub then
      lacked_milli = 1000 * (waiting - granted)
    elseif entry_need_milli + entry_ask > 0 then
      local times = (report_asked >= ASKS and fixed) and 0 or NEEDS_LACKED
      local expected_milli = NEED_MARGIN * report_demand_milli * rule.interval_us / 1000000
      lacked_milli = max(entry_need_milli, 1000 * entry_ask, times * expected_milli) - 1000 * (entry_allowance - used)
    end
    if lacked_milli <= 0 then return false end
    local held_milli = 1000 * (cell_allowances - entry_allowance - used_of(cell_current, cell_previous) + used)
    return held_milli - (cell_needs_milli - entry_need_milli) >= min(lacked_milli, SURPLUS * held_milli)
  end

  -- Notes the cell if the node lacks something of it.
  function note_lack(name)
    local RECALLS_MAX, RECALLED_FOR_US -- from merge/recalling.py
    if not lacks() then return end
    local key, kept = key_in(name), {}
    if not key then return end -- no name that a node of ours gives to a cell
    for _, each in ipairs(recalls()) do
      if each[3] ~= rule.name or each[4] ~= key then
        kept[#kept + 1] = each
      elseif hub_us - each[1] < rule.interval_us then
        return
      end
    end
    kept[#kept + 1] = { hub_us, node, rule.name, key, cell_needs_milli }
    while #kept > RECALLS_MAX or hub_us - kept[1][1] > RECALLED_FOR_US do table.remove(kept, 1) end
    meta.recalls, meta.recalled = kept, true
  end

  -- What is appended to an answer: the recalls since the node was heard last, except its own; see codec.py.
  function recalls_since(heard_us)
    local said = {}
    if meta.recalls then
      for _, each in ipairs(recalls()) do
        if each[1] >= heard_us and each[2] ~= batch.node then said[#said + 1] = { each[3], each[4], each[5] } end
      end
    end
    return #said == 0 and '' or '\0' .. pack(said)
  end
end

-- ------------------------------------------------------------------ merge/rule.py

-- Stores the cell's sums and the current entry, and what the node lacks. Returns whether the cell still exists.
local function write(key, known, heard, loans, lasting)
  note_lack(key)
  if bucket then keep_pool(key) end
  local leaves = forgotten or (entry_allowance == 0 and empty() and not (at_hub and bucket))
  if leaves then discount() end
  if leaves and heard then call('HDEL', key, node) end
  if forgotten then take_over(key) end
  if rule_apart and not (rule.first_hit or rule.slots) then look(key, loans, lasting) end
  if leaves and forgettable() and no_other_node(key) then
    if known then call('DEL', key) end
    return false
  end
  if leaves then
    call('HSET', key, 'g', written_cell())
  else
    call('HSET', key, 'g', written_cell(), node, written_entry())
  end
  return true
end

local function merge_cell(key)
  local found
  if rule_apart then found = call('HMGET', key, 'g', node, LOANS) else found = call('HMGET', key, 'g', node) end
  local known, heard, loans, lasting = found[1], found[2], found[3], false
  if known then
    read_cell(known)
    if hub_us > cell_expires_us then
      call('DEL', key)
      if loans then strike_off(string.sub(key, #KEYS[1] - 3)) end
      known, loans = false, false
    end
  end
  local epoch = rule_epoch
  if report_epoch ~= epoch or rule_elsewhere then epoch = epoch_of(known and cell_epoch) end
  if not known then
    if cramped then return not_taken(epoch) end
    heard = false
    new_cell(key, epoch)
  end
  local outlived = cell_expires_us < hub_us + rule_lives_us
  if outlived then cell_expires_us = hub_us + rule.kept_us end
  if epoch > cell_epoch or epoch < cell_epoch - 1 then roll(epoch) end
  if rule_elsewhere and rule.first_hit then
    report_epoch = same_window(report_epoch, cell_epoch) and cell_epoch or cell_epoch - 1
  end
  follow_reset()
  if bucket then drain_pool(key) end
  if heard then
    read_entry(heard)
    if entry_epoch ~= cell_epoch or entry_reset_us < cell_reset_us then catch_up(is_closed(batch.record)) end
    discount()
    lower()
  else
    new_entry()
    welcome(key)
  end
  set_own_aside()
  local used = take_counts(key)
  lent = 0
  if loans then lent, lasting = lent_by(loans) end
  used = hear_ask(key, used)
  local scans, grants = wants_scan(used)
  if scans then
    scan(key, (heard and 4 or known and 2 or 0) + (loans and 2 or 0))
    if dated then used = used_of(entry_current, entry_previous) end
  end
  if cell_first == node then cell_first, cell_reserved = '', 0 end
  forgotten = report_asked == FORGOTTEN and is_farewell()
  grants = grants and not forgotten
  if hub_us < cell_learn_until_us or hub_us < rule_learns_until_us then
    grant_asked(used, grants, true)
  elseif grants then
    if at_hub then grant_asked(used, true, false) else grant(used) end
  end
  count()
  cell_answer()
  if not write(key, known, heard, loans, lasting) then return end
  if outlived then call('PEXPIRE', key, ceil((cell_expires_us - hub_us) / 1000)) end
end

-- An account is stored as a flat list: when it was last seen, then name, charged and refunded for each limit.
local function keep_account()
  local stored = call('HGET', KEYS[3], batch.account)
  local account = stored and unpack_(stored) or { hub_us }
  account[1] = hub_us
  for _, rule in ipairs(batch.rules) do
    local place = #account + 1
    for position = 2, #account, 3 do
      if account[position] == rule.name then place = position end
    end
    account[place] = rule.name
    account[place + 1] = max(account[place + 1] or 0, rule.charged)
    account[place + 2] = max(account[place + 2] or 0, rule.refunded)
  end
  call('HSET', KEYS[3], batch.account, pack(account))
end

local function sweep()
  local TOMBSTONE_US, ACCOUNT_KEPT_US -- from merge/rule.py
  local records = call('HGETALL', KEYS[2])
  for position = 1, #records, 2 do
    local record = unpack_(records[position + 1])
    if hub_us - record[1] > record[4] + TOMBSTONE_US then call('HDEL', KEYS[2], records[position]) end
  end
  local accounts = call('HGETALL', KEYS[3])
  local sums, closed = nil, {}
  for position = 1, #accounts, 2 do
    local account = unpack_(accounts[position + 1])
    if accounts[position] == DEPARTED_FIELD then
      sums = account
    elseif hub_us - account[1] > ACCOUNT_KEPT_US then
      closed[#closed + 1] = account
      call('HDEL', KEYS[3], accounts[position])
    end
  end
  if #closed == 0 then return end
  sums = sums or { hub_us }
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
  call('HSET', KEYS[3], DEPARTED_FIELD, pack(sums))
end

local function whole_text(number)
  return string.format('%.0f', number)
end

-- Computes until when no node counts as silent, unless one leaves; when the last one was given up; and how many are
-- live.
local function look_around()
  local calm_us, live = nil, 0
  meta.opens_us, meta.apart_until_us = WHOLE_MAX, 0
  for _, record in pairs(all_records()) do
    note_opening(record)
    local seen_us, silent_us = record[1], record[1] + silent_after_us(record[3])
    if record[5] == 0 and hub_us - seen_us > record[4] then
      meta.stirred_us = max(meta.stirred_us, seen_us + record[4])
    elseif record[5] == 0 then
      calm_us = min(calm_us or silent_us, silent_us)
      live = live + 1
    end
  end
  meta.calm_us, meta.live = calm_us or 0, live
  call('HSET', KEYS[1], 'calm', whole_text(meta.calm_us), 'stirred', whole_text(meta.stirred_us), 'live', live,
    'opens', whole_text(meta.opens_us), 'apart', whole_text(meta.apart_until_us))
end

local function live_at_least(key, lives_ms)
  if call('PTTL', key) < lives_ms / 2 then call('PEXPIRE', key, lives_ms) end
end

-- ------------------------------------------------------------------ one exchange

local function answer(status)
  local nodes = status == MERGED and max(meta.live, 0) or 0
  pieces[1] = to_bytes(ANSWER_HEADER, SCHEMA_VERSION, status, wide and 8 or 4, rows_answered, hub_us, nodes)
  pieces[rows_answered + 2] = meta.generation
  return table.concat(pieces)
end

local rows, report_format, report_bytes = ARGV[2], nil, nil
do
  local fine, raw, well_formed = pcall(unpack_, ARGV[1])
  if not fine then return redis.error_reply('RCINVALID the batch is not msgpack') end
  well_formed, report_format, report_bytes = pcall(check_batch, raw, rows)
  if not well_formed then
    -- The message of a check, or of Lua if the batch is so odd that the check itself has failed.
    local what = tostring(report_format)
    return redis.error_reply(string.sub(what, 1, 10) == 'RCINVALID ' and what or 'RCINVALID the batch is malformed')
  end
  batch = {
    node = raw[2], account = raw[3], sequence = raw[4], generation = raw[5], candidate = raw[6],
    certainly_new = raw[7] == 1, interval_us = raw[8], lease_us = raw[9], leaving = raw[10] == 1, rules = raw[11],
    heard_us = raw[12],
  }
end
hub_us = tonumber(ARGV[3])
if not hub_us then
  local time = call('TIME')
  hub_us = time[1] * 1000000 + time[2]
end

local schema
do
  local fields = call('HMGET', KEYS[1], 'generation', 'born', 'lost', 'swept', 'schema', 'calm', 'stirred', 'live',
    'recalls', 'opens', 'apart')
  meta = {
    generation = fields[1], born_us = tonumber(fields[2] or hub_us), lost = fields[3] == '1',
    swept_us = tonumber(fields[4] or 0), calm_us = tonumber(fields[6] or 0), stirred_us = tonumber(fields[7] or 0),
    live = tonumber(fields[8] or 0), recalls = fields[9],
    opens_us = tonumber(fields[10] or 0), apart_until_us = tonumber(fields[11] or 0),
  }
  schema = tonumber(fields[5] or 0)
end
if meta.generation and schema > SCHEMA_VERSION then
  return redis.error_reply('RCINVALID the data are of schema ' .. schema .. ', which is newer than ' .. SCHEMA_VERSION)
end
-- A server that has reached its maxmemory refuses a script's first write if it may take memory, but no write after
-- that. So a first write is tried. If it is refused, a write that takes no memory comes first, and all others succeed.
do
  local tried = redis.pcall('HSET', KEYS[1], 'schema', SCHEMA_VERSION)
  if type(tried) == 'table' and tried.err and string.find(tried.err, 'OOM command not allowed', 1, true) then
    if not meta.generation or schema < SCHEMA_VERSION then return tried end
    cramped = true
    call('PEXPIRE', KEYS[1], max(call('PTTL', KEYS[1]), KEPT_MS))
  end
end
if not meta.generation or schema < SCHEMA_VERSION then
  -- Data of an older schema count as lost: its cells have other keys.
  meta.lost = meta.generation and true or false
  meta.born_us = batch.certainly_new and not meta.lost and 0 or hub_us
  meta.generation = batch.candidate
  call('HSET', KEYS[1], 'generation', meta.generation, 'born', whole_text(meta.born_us),
    'lost', meta.lost and '1' or '0', 'schema', SCHEMA_VERSION)
end
local record = call('HGET', KEYS[2], batch.node)
record = record and unpack_(record)
meta.heard_us = record and record[1] or hub_us
if record and (record[5] == 1 or hub_us - record[1] > record[4]) then
  record[5] = 1
  call('HSET', KEYS[2], batch.node, pack(record))
  call('HSET', KEYS[1], 'stirred', whole_text(hub_us))
  return answer(LAPSED)
end
if record and batch.sequence <= record[2] then return answer(STALE) end
if batch.generation ~= '' and batch.generation ~= meta.generation and not meta.lost then
  meta.lost = true
  if meta.born_us == 0 then meta.born_us = hub_us end
  call('HSET', KEYS[1], 'lost', '1', 'born', whole_text(meta.born_us))
end
if hub_us - meta.swept_us > SWEEP_US then
  sweep()
  call('HSET', KEYS[1], 'swept', whole_text(hub_us))
end
batch.record = heard_of(record)
call('HSET', KEYS[2], batch.node, pack(batch.record))
do
  local joined = (record and 0 or 1) - (batch.leaving and 1 or 0)
  if joined ~= 0 then
    meta.live = meta.live + joined
    call('HSET', KEYS[1], 'live', whole_text(meta.live))
  end
end
if batch.leaving then
  meta.stirred_us = hub_us
  call('HSET', KEYS[1], 'stirred', whole_text(hub_us))
end
do
  local silent_us = hub_us + silent_after_us(batch.interval_us)
  if hub_us > meta.calm_us then
    look_around()
  else
    local opens_us, apart_until_us = meta.opens_us, meta.apart_until_us
    note_opening(batch.record)
    if meta.opens_us ~= opens_us or meta.apart_until_us ~= apart_until_us then
      call('HSET', KEYS[1], 'opens', whole_text(meta.opens_us), 'apart', whole_text(meta.apart_until_us))
    end
    if silent_us < meta.calm_us then
      meta.calm_us = silent_us
      call('HSET', KEYS[1], 'calm', whole_text(silent_us))
    end
  end
end
local rules, lives_ms = batch.rules, KEPT_MS
for position, limit in ipairs(rules) do
  rules[position] = rule_of(limit)
  lives_ms = max(lives_ms, ceil(rules[position].kept_us / 1000))
end
-- In every exchange, so that a user without the right to PEXPIRE fails before a cell exists that would never expire.
call('PEXPIRE', KEYS[2], max(call('PTTL', KEYS[2]), lives_ms))
keep_account()
node, stirred_us, calm_us = batch.node, meta.stirred_us, meta.calm_us
local limit, used_limit
local cells = #KEYS - 3
-- Each exchange begins with another cell, so that each cell is scanned in its turn.
rows_answered = cells
for position = 2, cells + 1 do pieces[position] = false end -- in order, so that a row finds its place without a search
local first = cells > 0 and batch.sequence % cells * TURN % cells or 0
for turn = 0, cells - 1 do
  local position = (first + turn) % cells + 1
  place = position + 1
  report_epoch, report_reset_us, limit, report_current, report_previous, report_allowance, report_base, report_overdraft,
    report_need_milli, report_ask, report_asked, report_demand_milli, report_window_demand =
    from_bytes(report_format, rows, (position - 1) * report_bytes + 1)
  if limit ~= used_limit then
    use_rule(rules[limit + 1])
    used_limit = limit
  end
  keep_within_bounds()
  merge_cell(KEYS[position + 3])
end
if meta.recalled then call('HSET', KEYS[1], 'recalls', pack(meta.recalls)) end
live_at_least(KEYS[1], lives_ms)
live_at_least(KEYS[3], lives_ms)
return answer(MERGED) .. recalls_since(meta.heard_us)

end

return exchange()
