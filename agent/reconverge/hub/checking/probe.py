"""Tries out a hub: exchanges with it as a node that joins, reports no charges, and leaves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from secrets import token_hex
from typing import Final

from reconverge.clock import SECOND_NS, Clock
from reconverge.errors import ONE_VERSION, HubUnavailable
from reconverge.hub.diagnosis import Trip
from reconverge.hub.report import Answer, Batch, CellReport, LimitReport, Status
from reconverge.limit.limit import FIXED_WINDOW

EXCHANGES_MAX: Final = 20
EXCHANGES_S_MAX: Final = 2.0
"""The longest time, in seconds, for which a trial repeats its exchange."""
WINDOW_US: Final = 1_000_000
INTERVAL_US: Final = 100_000
LEASE_US: Final = 60_000_000
"""The lease of the trial's node, in microseconds: longer than any round trip may take."""


def scratch_namespace(namespace: str) -> str:
    """Returns a new namespace for a trial. It begins with `namespace`, so that the same access rights cover it."""
    return f"{namespace}:doctor-{token_hex(4)}"


def trial_batch(node: str, sequence: int, *, hub_us: int = 0, leaving: bool = False) -> Batch:
    """Returns a batch without keys; if `leaving`, the node's last batch, with one key that was never charged."""
    limit = LimitReport("doctor", FIXED_WINDOW, WINDOW_US, 1, 1, 0, 0, 0)
    cell = CellReport(0, "doctor", hub_us // WINDOW_US, *[0] * (len(CellReport._fields) - 3))
    return Batch(
        node=node,
        account=node,
        shard=0,
        sequence=sequence,
        generation="",
        interval_us=INTERVAL_US,
        lease_us=LEASE_US,
        leaving=leaving,
        limits=(limit,) if leaving else (),
        cells=(cell,) if leaving else (),
    )


TRIAL: Final = trial_batch("", 0, leaving=True)
"""The last batch of any trial. From its limit and key a hub computes which data a trial leaves behind."""


async def try_exchanges(exchange: Callable[[Batch], Awaitable[Answer]], clock: Clock) -> list[Trip]:
    """Exchanges batches without keys in a scratch namespace, and at the end one batch with a key.

    Returns the times of the exchanges, except the first, which also connects, and the last. Raises HubUnavailable.
    """
    node = token_hex(8)
    await _exchange(exchange, clock, trial_batch(node, 1))
    begun_ns = clock.monotonic_ns()
    trips: list[Trip] = []
    while len(trips) < EXCHANGES_MAX and clock.monotonic_ns() - begun_ns < EXCHANGES_S_MAX * SECOND_NS:
        trips.append(await _exchange(exchange, clock, trial_batch(node, len(trips) + 2)))
    await _exchange(exchange, clock, trial_batch(node, len(trips) + 2, hub_us=trips[-1].hub_us, leaving=True))
    return trips


async def _exchange(exchange: Callable[[Batch], Awaitable[Answer]], clock: Clock, batch: Batch) -> Trip:
    sent_ns = clock.monotonic_ns()
    answer = await exchange(batch)
    received_ns = clock.monotonic_ns()
    if answer.status is not Status.MERGED or len(answer.cells) != len(batch.cells):
        problem = f"the hub answered a new node's batch of {len(batch.cells)} cells with {answer.status.name} and"
        raise HubUnavailable("protocol", f"{problem} {len(answer.cells)} cells; {ONE_VERSION}")
    return Trip(sent_ns, received_ns, answer.hub_us)
