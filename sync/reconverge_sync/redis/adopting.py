"""Ends the wait of a Redis hub that has lost its data, by an operator's order to accept the loss.

Stores the order first, then ends the wait of each cell.
"""

from __future__ import annotations

from typing import Final

from reconverge.errors import HubUnavailable
from reconverge.hub.adopting import Adoption, HubData
from reconverge_sync.merge.adopting import data_of, refusal
from reconverge_sync.merge.rule import ADOPTED_US
from reconverge_sync.redis.scripts import Call, script
from reconverge_sync.redis.stored import READ_KEYS, read_shard

ADOPT: Final = script("adopt")
END_WAITS: Final = script("end_waits")
SCANNED_AT_ONCE: Final = 1000
CELLS_AT_ONCE: Final = 256
"""The most cells of one script, as of one batch, so that no node waits for longer than these take."""
CALLS_MAX: Final = 1_000_000
"""The most calls of SCAN; more would mean a thousand million keys on the server, and so a fault."""


async def read_data(call: Call, prefix: str, given_time: str) -> HubData:
    """Returns the state of a shard's data. Raises HubUnavailable.

    `call` runs a command on the shard's server; the shard's keys begin with `prefix`.
    """
    reply = await call("EVAL", READ_KEYS, 2, f"{prefix}meta", f"{prefix}nodes", given_time)
    return data_of(*read_shard(reply, ()))


async def adopt_loss(call: Call, prefix: str, generation: str, given_time: str) -> Adoption:
    """Ends the wait of a shard after a loss of its data. It can be repeated after a failure. Raises HubUnavailable."""
    problem = refusal(await read_data(call, prefix, given_time), generation)
    if problem:
        return Adoption(problem, 0)
    # A user without the right to scan is refused before anything changes.
    await call("SCAN", 0, "MATCH", f"{prefix}c*", "COUNT", 1)
    if await call("EVAL", ADOPT, 1, f"{prefix}meta", generation, ADOPTED_US) != 1:
        return Adoption("the hub has lost its data once more meanwhile: look again at what was lost", 0)
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
