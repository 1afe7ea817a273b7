"""How a loss is adopted on a Redis: the order first, then each cell's own wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from reconverge.errors import HubUnavailable
from reconverge.hub.adopting import Adoption, HubData
from reconverge_sync.merge.adopting import data_of, refusal
from reconverge_sync.merge.rule import ADOPTED_US
from reconverge_sync.redis.scripts import script
from reconverge_sync.redis.stored import READ_KEYS, read_shard

ADOPT: Final = script("adopt")
END_WAITS: Final = script("end_waits")
SCANNED_AT_ONCE: Final = 1000
CELLS_AT_ONCE: Final = 256
"""So many in one script, as in one batch: no node waits for longer than that takes."""
CALLS_MAX: Final = 1_000_000
"""After so many calls of SCAN something is wrong: a server would have a thousand million keys."""
Call = Callable[..., Awaitable[Any]]


async def read_data(call: Call, prefix: str, given_time: str) -> HubData:
    """The state of a shard's data. Raises HubUnavailable.

    `call` asks the server on which the shard's keys are, which begin with `prefix`.
    """
    reply = await call("EVAL", READ_KEYS, 2, f"{prefix}meta", f"{prefix}nodes", given_time)
    return data_of(*read_shard(reply, ()))


async def adopt_loss(call: Call, prefix: str, generation: str, given_time: str) -> Adoption:
    """Ends a shard's wait. If it fails half-way it can be done again. Raises HubUnavailable."""
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
    raise HubUnavailable("protocol", f"the server's keys have no end after {CALLS_MAX} calls of SCAN")
