"""The concurrency layer of a stack: a limit on this process's requests in progress that adapts itself."""

# Theory of operation.
#
# The layer connects three parts: the slots count the requests in progress, the window gathers their durations (round
# trips), and the algorithm computes a limit from each window. A ticket is the record of one slot. The slot is freed
# once: when the request ends, which adds its duration to the window, or when a later layer refuses it, which adds
# nothing. A slot is freed and the limit updated in one step, under the lock of the slots: the end of a window costs a
# microsecond, ten times a second at most.
#
# A request that waits for its client steps aside (see `shedding/admission.py`): its slot is free meanwhile, and its
# round trip does not include the wait, or a client that reads slowly would look like a slow service.

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from reconverge.errors import InvalidSetting, asked
from reconverge.runtime.process import register
from reconverge.runtime.unique import Unique
from reconverge.shedding.adaptive.algorithms import Aimd, Algorithm, Gradient2, Vegas
from reconverge.shedding.adaptive.sample import SampleWindow
from reconverge.shedding.adaptive.slots import RunningCount, checked_partitions
from reconverge.shedding.classes import TrafficClasses
from reconverge.shedding.layers import DROPPED, IGNORED, SERVED, Arrival, InProgress, Outcome, ShedRefusal

ALGORITHMS: Final[Mapping[str, Callable[[], Algorithm]]] = {"gradient2": Gradient2, "vegas": Vegas, "aimd": Aimd}
RETRY_AFTER_S: Final = 1.0
"""The seconds after which refused clients should come back. A slot is free sooner, but many clients would return at
once."""


class AdaptiveConcurrency:
    """Refuses requests, with 503, that would only wait for other requests of this process.

    Args:
        algorithm: "gradient2", "vegas" or "aimd", or an instance of one of their classes with settings of your own.
        classes: the classes of traffic; by default the four of `TrafficClasses`.
        partitions: by the names of classes, the fraction of the limit that each is guaranteed. Without them the more
            important classes go first.
        name: the name of this layer in decisions, metrics and switches.

    Raises InvalidSetting for an unknown algorithm, or unusable partitions.
    """

    counts_by_key: Final = False

    def __init__(
        self,
        algorithm: str | Algorithm = "gradient2",
        *,
        classes: TrafficClasses | None = None,
        partitions: Mapping[str, float] | None = None,
        name: str = "concurrency",
    ) -> None:
        self.name = name
        self.classes = TrafficClasses() if classes is None else classes
        self._algorithm = _made(algorithm)
        names = self.classes.names
        guarantees = None if partitions is None else checked_partitions(partitions, names)
        self.slots: Final = RunningCount(self._algorithm.limit, len(names), guarantees)
        """Counts the requests in progress."""
        self._window = SampleWindow()
        register(self, sigterm=False)

    @property
    def limit(self) -> int:
        """Returns the present limit: how many requests may run at once."""
        return self.slots.limit

    @property
    def in_flight(self) -> int:
        """Returns the number of requests in progress."""
        return self.slots.in_flight

    def enter(self, arrival: Arrival) -> SlotInUse | ShedRefusal | None:
        slots = self.slots
        in_flight = slots.take(arrival.rank, arrival.now_ns)
        return SlotInUse(self, arrival, in_flight, slots.forks) if in_flight else self.refusal()

    def refusal(self) -> ShedRefusal:
        slots = self.slots
        reason = f"{slots.in_flight} requests are in progress here, and at most {slots.limit} are allowed."
        return ShedRefusal(self.name, 503, RETRY_AFTER_S, reason, concurrent_max=slots.limit)

    def enter_anyway(self, arrival: Arrival) -> SlotInUse | None:
        return SlotInUse(self, arrival, self.slots.take_anyway(arrival.rank), self.slots.forks)

    def readings(self) -> Mapping[str, float]:
        return {"limit": float(self.slots.limit), "in_flight": float(self.slots.in_flight)}

    def free(self, slot: InSlot, now_ns: int, outcome: Outcome) -> None:
        """Ends a request that has a slot, and adds its duration to the sample unless its outcome is "ignored".

        Later calls for the same request do nothing.
        """
        slots = self.slots
        lock = slots.lock
        lock.acquire()  # not `with`, as in `RunningCount.take`
        try:
            if not (slot.held or slot.aside) or slot.forks != slots.forks:
                return
            if slot.held:
                slots.free(slot.rank)
                took_ns = now_ns - slot.began_ns or 1
            else:
                took_ns = -slot.began_ns or 1
            slot.held = slot.aside = False
            if outcome == IGNORED:
                return
            dropped = outcome == DROPPED
            sample = self._window.add(now_ns, took_ns, slot.in_flight, dropped=dropped, full_at=slots.full_at)
            if sample is not None:
                slots.full_at = 0
                slots.limit = self._algorithm.update(sample)
                slots.scale = getattr(self._algorithm, "probe_scale", 1.0)
        finally:
            lock.release()

    def step_aside(self, slot: InSlot, now_ns: int, *, begun: bool) -> None:
        """Frees the slot of a request that waits for its client; the wait does not count as part of the round trip.

        `begun` means that work on the request has begun. If it is False, the request also no longer counts as demand of
        its class, for which slots are left free.
        """
        slots = self.slots
        with slots.lock:
            if slot.held and slot.forks == slots.forks:
                slot.held, slot.aside = False, True
                slot.began_ns -= now_ns  # negative: the time that it has worked
                slots.free(slot.rank)
                if not begun:
                    slots.unwanted(slot.rank)

    def go_on(self, slot: InSlot, now_ns: int, *, anyway: bool) -> ShedRefusal | None:
        """Takes a slot again for a request that has waited for its client.

        Returns None, or a refusal if no slot is free. If `anyway` is True, it gets a slot even beyond the limit.
        """
        slots = self.slots
        if not self._is_aside(slot):
            return None
        in_flight = slots.take_anyway(slot.rank) if anyway else slots.take(slot.rank, now_ns)
        if not in_flight:
            return self.refusal()
        with slots.lock:
            if self._is_aside(slot):
                slot.held, slot.aside = True, False
                slot.began_ns += now_ns
                slot.in_flight = in_flight
            else:  # another thread has ended it meanwhile
                slots.free(slot.rank)
        return None

    def _is_aside(self, slot: InSlot) -> bool:
        return slot.aside and slot.forks == self.slots.forks

    def start_over_after_fork(self) -> None:
        """Sets the count of requests in progress to zero in a forked child: those requests run in the parent."""
        self.slots.start_over()

    def stop_for_good(self, timeout_s: float) -> None:
        """Does nothing, because this layer has no thread to stop at the end of the process."""

    def __repr__(self) -> str:
        return f"AdaptiveConcurrency({self.name!r}, limit={self.limit}, in_flight={self.in_flight})"


class InSlot(Protocol):
    """A request in progress, with the fields that `AdaptiveConcurrency.free` needs."""

    held: bool
    """Whether the request counts as in progress; changed under the lock of the slots."""
    aside: bool
    """Whether the request waits for its client, and has given its slot back meanwhile; changed under the lock of the
    slots."""
    rank: int
    """The number of the request's class, 0 for the most important one."""
    began_ns: int
    """The monotonic time of arrival plus all time in which the request waited for its client. While it waits: minus the
    nanoseconds that it has worked so far."""
    in_flight: int
    """The number of requests in progress when this one began or went on, itself included."""
    forks: int
    """The value of `RunningCount.forks` when the request began; if the count has changed since, the request runs in the
    parent process."""


class SlotTicket(Unique):
    """The record of a request that `AdaptiveConcurrency` has admitted; its `slot` holds the state of the request."""

    __slots__ = ("holder",)
    holder: AdaptiveConcurrency

    @property
    def slot(self) -> InSlot:
        """Returns the object that holds the state of the request, such as its arrival."""
        raise NotImplementedError

    @property
    def in_progress(self) -> InProgress:
        """Returns the present limit, and how much of it was free when this request last began or went on."""
        limit = self.holder.slots.limit
        return InProgress(self.holder.name, limit, max(0, limit - self.slot.in_flight))

    def finish(self, now_ns: int, outcome: Outcome = SERVED) -> None:
        self.holder.free(self.slot, now_ns, outcome)

    def step_aside(self, now_ns: int, *, begun: bool) -> None:
        self.holder.step_aside(self.slot, now_ns, begun=begun)

    def go_on(self, now_ns: int, *, anyway: bool) -> ShedRefusal | None:
        return self.holder.go_on(self.slot, now_ns, anyway=anyway)

    def give_back(self, now_ns: int) -> None:
        self.finish(now_ns, IGNORED)


class SlotInUse(SlotTicket):
    """A ticket that is its own slot: it holds the fields of `InSlot` itself."""

    __slots__ = ("aside", "began_ns", "forks", "held", "in_flight", "rank")

    def __init__(self, holder: AdaptiveConcurrency, arrival: Arrival, in_flight: int, forks: int) -> None:
        self.holder = holder
        self.held = True
        self.aside = False
        self.rank = arrival.rank
        self.began_ns = arrival.now_ns
        self.in_flight = in_flight
        self.forks = forks

    @property
    def slot(self) -> InSlot:
        return self


def _made(algorithm: object) -> Algorithm:
    if isinstance(algorithm, str):
        if algorithm not in ALGORITHMS:
            known = ", ".join(ALGORITHMS)
            raise InvalidSetting("algorithm", algorithm, f"is none of {known}{asked(algorithm, ALGORITHMS)}")
        return ALGORITHMS[algorithm]()
    if not callable(getattr(algorithm, "update", None)) or not isinstance(getattr(algorithm, "limit", None), int):
        raise InvalidSetting(
            "algorithm", algorithm, f"must be one of {', '.join(ALGORITHMS)}, or made by their classes"
        )
    return algorithm  # type: ignore[return-value]  # as just checked
