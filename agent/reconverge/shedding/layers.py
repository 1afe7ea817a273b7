"""The interface of a stack's layers: each admits a request, perhaps with a record, or refuses it with a reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from reconverge.decision import Decision
    from reconverge.limit.limit import Limit

Outcome: TypeAlias = Literal["served", "dropped", "ignored"]
SERVED: Final = "served"
"""The outcome of an answered request, whose duration is a measure of the load."""
DROPPED: Final = "dropped"
"""The outcome of a request that ran into a timeout, or that a called service refused because of load."""
IGNORED: Final = "ignored"
"""The outcome of a request that was cancelled, or failed for another reason: its duration is no measure of the load."""


class Arrival:
    """A request as the layers receive it. Made once for each request, and shared by all layers."""

    __slots__ = ("key", "now_ns", "rank")

    def __init__(self, key: str, rank: int, now_ns: int) -> None:
        self.key = key
        """The key by which layers count a request rate."""
        self.rank = rank
        """The number of the request's class, 0 for the most important one."""
        self.now_ns = now_ns
        """The arrival of the request, in nanoseconds of the monotonic clock."""


@dataclass(frozen=True, slots=True)
class ShedRefusal:
    """The refusal of a request by a layer, with its reason."""

    layer: str
    """The name of the layer that refused."""
    status: int
    """The status of HTTP: 429 for the caller's own limit, 503 for the state of the service."""
    retry_after: float | None
    """The seconds after which the same request may be admitted; None if that cannot be known."""
    reason: str
    """The reason as a sentence for the caller."""
    decision: Decision | None = None
    """The decision of the layer's limit; None if the layer has no limit."""
    quotas: Mapping[str, Limit] | None = None
    """The quotas of the layer's limit, by name; None if the layer has no limit."""
    concurrent_max: int | None = None
    """The most requests that may be in progress, if the layer counts these; otherwise None."""


class InProgress(NamedTuple):
    """The limit of a layer on requests in progress, and how much of it is free, as shown in RateLimit fields."""

    name: str
    limit: int
    """The number of requests that may run at once."""
    left: int
    """The number of requests that may begin now."""


class Ticket(Protocol):
    """A layer's record of a request that it has admitted.

    Either `finish` or `give_back` is called, once; more calls do nothing.

    The record of a layer that counts requests in progress may have an attribute `in_progress`, for the fields of the
    response: an `InProgress`, or None.

    The record of a layer that counts work may have two further methods, because a request that only waits for its
    client is no work: `step_aside(now_ns, *, begun)` at the beginning of such a wait, and `go_on(now_ns, *, anyway)` at
    its end. `go_on` returns a `ShedRefusal` if there is no room for the request now; with `anyway` it returns None.
    """

    def finish(self, now_ns: int, outcome: Outcome) -> None:
        """Ends the request in the layer; `outcome` decides whether its duration is a measure of the load."""
        ...

    def give_back(self, now_ns: int) -> None:
        """Undoes the admission of the request, because a later layer has refused it."""
        ...


class Layer(Protocol):
    """One of the layers of a stack.

    Promises: it never waits, and may be called from several threads.
    Does not promise: that it returns a ticket (a record) for each request that it admits.

    A layer that counts by the key of a request has an attribute `counts_by_key` that is true, so that an application
    without a function for keys gets a warning; false means that keys make no difference.
    """

    @property
    def name(self) -> str:
        """Returns the name of the layer in decisions, metrics and switches."""
        ...

    def enter(self, arrival: Arrival) -> Ticket | ShedRefusal | None:
        """Decides about a request. Returns a `ShedRefusal`, or for an admitted request its record, a ticket.

        Returns None for an admitted request of which the layer keeps no record. A refusal charges nothing.
        """
        ...

    def enter_anyway(self, arrival: Arrival) -> Ticket | None:
        """Admits a request that `enter` refused while the layer is in shadow. Returns its record, or None."""
        ...

    def readings(self) -> Mapping[str, float]:
        """Returns the layer's measured values by name, for metrics; the names are few and always the same."""
        ...


class LoopWatcher(Protocol):
    """A layer that measures the event loop which serves the requests."""

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Measures the event loop `loop` from now on.

        Called on the loop's own thread, perhaps again for the same loop.
        """
        ...
