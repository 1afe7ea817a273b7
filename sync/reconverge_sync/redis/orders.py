"""Operators' orders at a Redis: to end the wait of a hub that has lost its data, and to erase an identity.

To end the wait, the hub first stores the order, and then ends the wait of each cell. It finds the keys of an identity
with SCAN, and drops them by scripts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from reconverge.errors import ONE_VERSION, HubUnavailable
from reconverge.hub.adopting import Adoption, HubData
from reconverge.hub.erasing import ORDERS_MAX, Erased, Erasure, Erasures, names_in
from reconverge_sync.merge.orders import KEPT_US, data_of, refusal
from reconverge_sync.merge.rule import ADOPTED_US
from reconverge_sync.redis.lua.scripts import Call, script
from reconverge_sync.redis.stored import READ_KEYS, read_shard

ADOPT: Final = script("orders/adopt")
END_WAITS: Final = script("orders/end_waits")
SCANNED_AT_ONCE: Final = 1000
CELLS_AT_ONCE: Final = 256
"""The most cells in one run of a script, as many as in a node's batch, so that no node waits long for the server."""
CALLS_MAX: Final = 1_000_000
"""The most calls of SCAN in one search. More would mean a thousand million keys on the server, and so a fault."""
ORDER: Final = script("now", "orders/order_erasure")
READ_ORDERS: Final = script("now", "orders/read_erasures")
DROP_KEYS: Final = script("now", "orders/drop_keys")
ERASE_USAGE: Final = script("usage/erase")
_CELL: Final = re.compile(r"c\d+:[^:]*:[^:]*:[^:]*:(.*)", re.DOTALL)
"""The pattern of a cell's name without the shard's prefix, whose parts are schema, limit, algorithm, window and key;
its group is the key."""
_USAGE: Final = re.compile(r"u1:([tipoa]):")


async def read_data(call: Call, prefix: str, given_time: str) -> HubData:
    """Returns the state of a shard's data. Raises HubUnavailable.

    `call` runs a command on the shard's server; `prefix` is the beginning of the shard's Redis keys; `given_time` is a
    test's time in microseconds, or "" for the server's own.
    """
    reply = await call("EVAL", READ_KEYS, 2, f"{prefix}meta", f"{prefix}nodes", given_time)
    return data_of(*read_shard(reply, ()))


async def adopt_loss(call: Call, prefix: str, generation: str, given_time: str) -> Adoption:
    """Ends a shard's wait after a loss of its data, and returns the outcome. Raises HubUnavailable.

    Can be repeated after a failure.
    """
    problem = refusal(await read_data(call, prefix, given_time), generation)
    if problem:
        return Adoption(problem, 0)
    # A user without the right to scan is refused before anything changes.
    await call("SCAN", 0, "MATCH", f"{prefix}c*", "COUNT", 1)
    if await call("EVAL", ADOPT, 1, f"{prefix}meta", generation, ADOPTED_US) != 1:
        return Adoption("the hub has lost its data once more meanwhile; check the loss again before you adopt it", 0)
    cursor, ended = 0, 0
    for _ in range(CALLS_MAX):
        cursor, names = await call("SCAN", cursor, "MATCH", f"{prefix}c*", "COUNT", SCANNED_AT_ONCE)
        for first in range(0, len(names), CELLS_AT_ONCE):
            some = names[first : first + CELLS_AT_ONCE]
            ended += int(await call("EVAL", END_WAITS, len(some), *some))
        if int(cursor) == 0:
            return Adoption("", ended)
    problem = f"the search of the server's keys under {prefix!r} did not end after {CALLS_MAX} calls of SCAN; try again"
    raise HubUnavailable("protocol", problem)


async def read_orders(call: Call, key: str, since_us: int, given_time: str) -> Erasures:
    """Returns the orders to erase that are later than `since_us`, and the hub's time. Raises HubUnavailable."""
    reply = await call("EVAL", READ_ORDERS, 1, key, since_us, given_time)
    try:
        hub_us, *flat = (str(each, "utf-8") for each in reply)
        orders = [Erasure(int(at), mark) for mark, at in zip(flat[::2], flat[1::2], strict=True)]
        return Erasures(int(hub_us), sorted(orders))
    except (ValueError, TypeError) as error:
        problem = f"the orders to erase identities at {key} cannot be read: {str(error)[:200]}; {ONE_VERSION}"
        raise HubUnavailable("protocol", problem) from error


async def give_orders(call: Call, key: str, marks: Sequence[str], given_time: str) -> int:
    """Stores, for each mark (the hash of an identity), an order that nodes erase that identity.

    Returns the moment of the last order. Raises HubUnavailable.
    """
    return int(await call("EVAL", ORDER, 1, key, given_time, KEPT_US, ORDERS_MAX, *marks))


async def drop_cells(call: Call, prefix: str, cells: Sequence[bytes], given_time: str) -> tuple[int, int]:
    """Drops those of `cells` that no live node has; returns how many were dropped, and how many stay.

    Raises HubUnavailable.
    """
    dropped = kept = 0
    for first in range(0, max(1, len(cells)), CELLS_AT_ONCE):
        keys = (f"{prefix}meta", f"{prefix}nodes", *cells[first : first + CELLS_AT_ONCE])
        more, left = await call("EVAL", DROP_KEYS, len(keys), *keys, given_time)
        dropped, kept = dropped + int(more), kept + int(left)
    return dropped, kept


async def erase_step(
    call: Call, prefix: str, identity: str, names: Sequence[str], cursor: int, given_time: str
) -> Erased:
    """Erases an identity from the Redis keys that one SCAN from `cursor` on returns. Raises HubUnavailable.

    Counts a key that SCAN returns twice only once, because it is gone the second time.
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
