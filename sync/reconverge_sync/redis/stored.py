"""Reads a shard and its cells, as a Redis stores them, into the ledger of the merge rule.

`layout.py` has the order of the numbers of a cell and of an entry; `exchange.lua` leaves out zeros at the end. This
file only reads them, to apply the merge rule of Python; only `exchange.lua` writes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgpack

from reconverge.errors import ONE_VERSION, HubUnavailable
from reconverge.hub.report import SCHEMA_VERSION, WHOLE_MAX
from reconverge_sync.merge.ledger import DEPARTED, Entry, LedgerCell, NodeRecord
from reconverge_sync.merge.loans import Credit, Identity, Lending
from reconverge_sync.merge.rule import LedgerShard
from reconverge_sync.redis.lua.layout import CELL, DEPARTED_FIELD, ENTRY, LOANS, SUMS
from reconverge_sync.redis.lua.scripts import script

READ_KEYS: Final = script("now", "read_keys")
FRACTIONS: Final = frozenset(("fill_milli", "carry_milli"))
TEXTS: Final = frozenset(("first",))
LEAST: Final = (13, 10)
"""How many numbers a stored cell has at least, and how many a stored entry has."""
Fields = Mapping[bytes, bytes]


def read_shard(reply: Any, identities: Sequence[Identity]) -> tuple[LedgerShard, int]:
    """Returns the shard with its cells from the reply of the script READ_KEYS, and the hub's time in microseconds.

    Raises HubUnavailable if the reply is invalid, or if a newer version has stored the data.
    """
    try:
        hub_us, generation, born_us, lost, schema, adopted, nodes, *cells = reply
        if int(schema) > SCHEMA_VERSION:
            raise ValueError(f"the data are of schema {int(schema)}, newer than {SCHEMA_VERSION}; update this program")
        shard = LedgerShard(str(generation, "utf-8"), int(born_us), lost == b"1", int(adopted))
        shard.nodes = {str(name, "utf-8"): _node(packed) for name, packed in _fields(nodes).items()}
        lending = Lending()
        for identity, flat in zip(identities, cells, strict=True):
            stored = _fields(flat)
            if SUMS in stored:
                shard.cells[identity] = _cell(stored)
                lending.credits[identity] = _loans(stored.get(LOANS))
        shard.lending = lending
        return shard, int(hub_us)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        problem = f"the data of a shard at the server cannot be read: {str(error)[:200]}; {ONE_VERSION}"
        raise HubUnavailable("protocol", problem) from error


def _fields(flat: Any) -> dict[bytes, bytes]:
    """Returns a Redis hash as a dictionary, from a flat list of fields and values."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _node(packed: bytes) -> NodeRecord:
    seen_us, sequence, interval_us, lease_us, gone, *sealed = map(_whole, msgpack.unpackb(packed))
    return NodeRecord(seen_us, sequence, interval_us, lease_us, gone == 1, *sealed)


def _cell(stored: Fields) -> LedgerCell:
    numbers = _numbers(stored[SUMS], CELL, least=LEAST[0])
    numbers.pop("pooled", None)  # used only by the script, which reads the hub's own bucket only if there is one
    cell = LedgerCell(numbers.pop("epoch"), numbers.pop("capacity"), numbers.pop("filled_us", 0))
    for name, number in numbers.items():
        setattr(cell, name, number != 0 if name == "restless" else number)
    for field, packed in stored.items():
        if field in (SUMS, LOANS):
            continue
        said = _numbers(packed, ENTRY, least=LEAST[1])
        said["sealed"] = said.get("sealed", 0) != 0
        name = DEPARTED if field == DEPARTED_FIELD else str(field, "utf-8")
        cell.entries[name] = Entry(said.pop("epoch"), said.pop("reset_us", 0), **said)
    return cell


def _loans(packed: bytes | None) -> dict[str, Credit]:
    _, *flat = list(unpacked(packed)) if packed else [0]
    four = zip(flat[::4], flat[1::4], flat[2::4], flat[3::4], strict=True)
    return {
        str(lender, "utf-8") if isinstance(lender, bytes) else str(lender): Credit(*map(_whole, rest))
        for lender, *rest in four
    }


def _numbers(packed: bytes, names: Sequence[str], *, least: int) -> dict[str, Any]:
    """Returns packed numbers by their `names`, in that order. Raises ValueError if there are fewer than `least`."""
    values = list(unpacked(packed))
    if not least <= len(values) <= len(names):
        raise ValueError(f"a cell or a node's entry has {len(values)} numbers instead of {least} to {len(names)}")
    return {name: _value(name, value) for name, value in zip(names, values, strict=False)}


def unpacked(packed: bytes) -> msgpack.Unpacker:
    """Returns an iterator of the values that a script has packed one after another."""
    unpacker = msgpack.Unpacker()
    unpacker.feed(packed)
    return unpacker


def _value(name: str, value: object) -> object:
    if name in TEXTS:
        return value if isinstance(value, str) else str(value)
    if name in FRACTIONS and isinstance(value, float):
        return value
    return _whole(value, name)


def _whole(value: object, name: str = "a field of a node or a loan") -> int:
    """Returns `value` as a whole number; Lua may have stored it as a double. Raises ValueError for any other value."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int or abs(value) > WHOLE_MAX:
        raise ValueError(f"{name} is {value!r:.40}, not a whole number")
    return value
