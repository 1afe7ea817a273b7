"""What a region was lent, and what it could do with, as a Redis keeps it; `merge/loans.py` is the definition.

The list is in the hash of the shard, one field for each cell, named like the cell's own hash without what is common to
the shard; loans are in a field of the cell's hash. Both are read and written by scripts that look at nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgpack

from reconverge.errors import HubUnavailable
from reconverge.hub.report import SCHEMA_VERSION, WHOLE_MAX, Lent, Loan, Status, Wish, Wishes
from reconverge_sync.merge.loans import LENDERS_MAX

CELLS: Final = f"c{SCHEMA_VERSION}:"
"""With this the name of each cell begins."""
LOANS_MAX: Final = 256
"""So many at a time, so that nobody else waits for longer than that takes."""
_NOW: Final = b"""\
local function now_us(told)
  if tonumber(told) then return tonumber(told) end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
"""
WISHES: Final = (
    _NOW
    + b"""\
-- KEYS 1 meta 2 nodes  ARGV 1 the time in microseconds (tests only)
local call, unpack_, hub_us, lease_us = redis.call, cmsgpack.unpack, now_us(ARGV[1]), 0
local records = call('HGETALL', KEYS[2])
for position = 2, #records, 2 do lease_us = math.max(lease_us, unpack_(records[position])[4]) end
local told = { string.format('%.0f', hub_us), call('HGET', KEYS[1], 'incarnation') or '', lease_us }
local fields, listed = call('HGETALL', KEYS[1]), 0
for position = 1, #fields, 2 do
  local name, packed = fields[position], fields[position + 1]
  if name == 'listed' then listed = tonumber(packed) end
  if string.find(name, ':', 1, true) then
    local wish = { unpack_(packed) }
    if hub_us - wish[11] > wish[10] + 2 * lease_us then
      call('HDEL', KEYS[1], name)
    else
      told[#told + 1] = name
      told[#told + 1] = packed
    end
  end
end
local found = (#told - 3) / 2
if found ~= listed then call('HSET', KEYS[1], 'listed', found) end
return told
"""
)
LEND: Final = (
    _NOW
    + b"""\
-- KEYS 1 meta 2... cells  ARGV 1 lender 2 sequence 3 the time in microseconds (tests only) 4... amount, end of each
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
local told = { string.format('%.0f', hub_us), call('HGET', KEYS[1], 'incarnation') or '', stale and 1 or 0 }
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
  told[#told + 1] = held
end
return told
""".replace(b"LENDERS_MAX", b"%d" % LENDERS_MAX)
)


def lend_arguments(lender: str, sequence: int, loans: Sequence[Loan]) -> tuple[list[str], list[str | int]]:
    """The names of the cells, and what is lent to them. Raises HubUnavailable if that cannot be asked."""
    if not (0 < len(lender) <= 128 and 0 < sequence <= WHOLE_MAX and len(loans) <= LOANS_MAX):
        raise HubUnavailable("protocol", "such loans cannot be asked for", applied=False)
    arguments: list[str | int] = [lender, sequence, ""]
    for cell, amount, until_us in loans:
        if not (cell.startswith(CELLS) and 0 <= amount <= WHOLE_MAX and 0 <= until_us <= WHOLE_MAX):
            raise HubUnavailable("protocol", "a loan that cannot be sent", applied=False)
        arguments += [amount, until_us]
    return [loan.cell for loan in loans], arguments


def read_wishes(reply: Any) -> Wishes:
    """What WISHES answers. Raises HubUnavailable when it is not that."""
    try:
        hub_us, incarnation, lease_us, *told = reply
        named = zip(told[::2], told[1::2], strict=True)
        wishes = tuple(_wish(str(name, "utf-8"), packed) for name, packed in named)
        return Wishes(int(hub_us), str(incarnation, "utf-8"), _whole(lease_us), wishes)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise HubUnavailable("protocol", f"the wishes cannot be read: {str(error)[:200]}") from error


def read_lent(reply: Any, *, loans: int) -> Lent:
    """What LEND answers. Raises HubUnavailable when it is not that."""
    try:
        hub_us, incarnation, stale, *held = reply
        if len(held) != loans:
            raise ValueError("another number of loans")
        status = Status.STALE if stale else Status.MERGED
        return Lent(int(hub_us), str(incarnation, "utf-8"), status, tuple(_whole(each, least=-1) for each in held))
    except (ValueError, TypeError) as error:
        raise HubUnavailable("protocol", f"the answer about loans cannot be read: {str(error)[:200]}") from error


def _wish(name: str, packed: Any) -> Wish:
    unpacker = msgpack.Unpacker()
    unpacker.feed(packed)
    limit, *numbers = unpacker
    if type(limit) is not str or not name.startswith(CELLS) or len(numbers) != len(Wish._fields) - 2:
        raise ValueError("not a wish")
    return Wish(name, limit, *map(_whole, numbers))


def _whole(value: object, *, least: int = 0) -> int:
    if type(value) is not int or not least <= value <= WHOLE_MAX:
        raise ValueError(f"{value!r:.40} is not a whole number")
    return value
