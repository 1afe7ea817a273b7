"""A vocabulary for tests of judgements on runs: limits of ten in ten seconds, requests and charges at a moment."""

from __future__ import annotations

from itertools import count as numbers

from reconverge.clock import SECOND_NS
from reconverge.limit import FIXED_WINDOW, Limit
from reconverge.simulation.truth import DecidedRequest, TrueCharge

WINDOW_S = 10
WINDOW_NS = WINDOW_S * SECOND_NS
_numbers = numbers()


def ten(algorithm: str = FIXED_WINDOW, burst: int | None = None) -> Limit:
    return Limit(10, WINDOW_S, algorithm=algorithm, burst=burst)


def at(seconds: float, *, late_ns: int = 0) -> int:
    """Returns a moment by the hub's clock, to the nanosecond."""
    return round(seconds * SECOND_NS) + late_ns


def charge(
    cost: int, moment_ns: int, *, key: str = "ada", epoch: int | None = None, settling: bool = False
) -> TrueCharge:
    """Returns a charge, in the window of its moment unless its node thought otherwise."""
    own = moment_ns // WINDOW_NS if epoch is None else epoch
    return TrueCharge(key, own, moment_ns, cost, settling, slice_of(moment_ns))


def request(
    cost: int,
    moment_ns: int,
    *,
    key: str = "ada",
    epoch: int | None = None,
    settle: int = 0,
    node: int = 0,
    allowed: bool = True,
    known: bool = True,
) -> DecidedRequest:
    """Returns a request with its node's decision."""
    own = moment_ns // WINDOW_NS if epoch is None else epoch
    return DecidedRequest(moment_ns, next(_numbers), key, own, cost, settle, node, allowed, known, slice_of(moment_ns))


def slice_of(moment_ns: int) -> int:
    """Returns the number of the slice of a moment, with the default of ten slices a second."""
    return moment_ns // SECOND_NS


def crowd(count: int, moment_ns: int, *, key: str = "ada", allowed: bool = True) -> list[DecidedRequest]:
    """Returns requests of cost 1 at the same moment."""
    return [request(1, moment_ns, key=key, allowed=allowed) for _ in range(count)]
