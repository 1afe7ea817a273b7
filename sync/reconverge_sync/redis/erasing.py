"""Erases one identity from a Redis: finds its keys with SCAN, and drops them by scripts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from reconverge.errors import ONE_VERSION, HubUnavailable
from reconverge.hub.erasing import ORDERS_MAX, Erased, Erasure, Erasures, names_in
from reconverge_sync.merge.erasing import KEPT_US
from reconverge_sync.redis.adopting import CELLS_AT_ONCE, SCANNED_AT_ONCE
from reconverge_sync.redis.scripts import Call, script

ORDER: Final = script("now", "order_erasure")
READ_ORDERS: Final = script("now", "read_erasures")
DROP_KEYS: Final = script("now", "drop_keys")
ERASE_USAGE: Final = script("usage_erase")
_CELL: Final = re.compile(r"c\d+:[^:]*:[^:]*:[^:]*:(.*)", re.DOTALL)
"""The pattern of a cell's name without the shard's prefix: schema, limit, algorithm, window, key."""
_USAGE: Final = re.compile(r"u1:([tipoa]):")


async def read_orders(call: Call, key: str, since_us: int, given_time: str) -> Erasures:
    """Returns the orders to erase that are newer than `since_us`. Raises HubUnavailable."""
    reply = await call("EVAL", READ_ORDERS, 1, key, since_us, given_time)
    try:
        hub_us, *flat = (str(each, "utf-8") for each in reply)
        orders = [Erasure(int(at), mark) for mark, at in zip(flat[::2], flat[1::2], strict=True)]
        return Erasures(int(hub_us), sorted(orders))
    except (ValueError, TypeError) as error:
        problem = f"the orders to erase identities at {key} cannot be read: {str(error)[:200]}; {ONE_VERSION}"
        raise HubUnavailable("protocol", problem) from error


async def give_orders(call: Call, key: str, marks: Sequence[str], given_time: str) -> int:
    """Stores orders to erase, one for each mark. Raises HubUnavailable."""
    return int(await call("EVAL", ORDER, 1, key, given_time, KEPT_US, ORDERS_MAX, *marks))


async def drop_cells(call: Call, prefix: str, cells: Sequence[bytes], given_time: str) -> tuple[int, int]:
    """Drops cells that no live node has. Returns how many were dropped, and how many stay. Raises HubUnavailable."""
    dropped = kept = 0
    for first in range(0, len(cells), CELLS_AT_ONCE):
        keys = (f"{prefix}meta", f"{prefix}nodes", *cells[first : first + CELLS_AT_ONCE])
        more, left = await call("EVAL", DROP_KEYS, len(keys), *keys, given_time)
        dropped, kept = dropped + int(more), kept + int(left)
    return dropped, kept


async def erase_step(
    call: Call, prefix: str, identity: str, names: Sequence[str], cursor: int, given_time: str
) -> Erased:
    """Searches and erases some keys of an identity, from a cursor of SCAN on. Raises HubUnavailable.

    A key that SCAN returns twice counts once, as it is gone the second time.
    """
    cursor, found = await call("SCAN", cursor, "MATCH", f"{prefix}[cu]*", "COUNT", SCANNED_AT_ONCE)
    wanted, cells, rows = set(names), dict[bytes, None](), 0
    begins = f"{identity}\0".encode("utf-8", "surrogatepass")
    for raw in found:
        rest = raw.decode("utf-8", "surrogateescape")[len(prefix) :]
        cell, usage = _CELL.fullmatch(rest), _USAGE.match(rest)
        if cell is not None and wanted.intersection(names_in(cell[1])):
            cells[raw] = None
        elif usage is not None:
            rows += int(await call("EVAL", ERASE_USAGE, 1, raw, begins, usage[1]))
    dropped, kept = await drop_cells(call, prefix, list(cells), given_time)
    return Erased(int(cursor), dropped, kept, rows)
