"""Decides in one function for a stack that has only this package's layers, in usual order and none in shadow."""

# Theory of operation.
#
# A stack knows its layers by the interface `Layer`: it calls each layer, which may return a ticket, and calls the
# ticket when the request ends. So a stack can have layers of any class. For each admitted request, and nearly all are,
# this makes an arrival, a ticket of each layer, a list of the tickets and an admission, which takes half of the time.
#
# Most stacks consist of the four layers of this package, in the order rate, concurrency, fleet, worker, of which some
# are left out. Such a stack makes a `FastPath`, and makes it anew when a layer is switched. The fast path asks the same
# parts of the layers in the same order (the limiter, the slots, the limiter of the class, the dither), and stores all
# that they hold for the request in one object, the `Passage`, which is the admission as well. The layer that refuses
# makes the refusal, by the same function as in the general way.
#
#     the stack has                                     effect
#     a layer in shadow                                 the general way is used, for all requests
#     a layer of another class, even a derived one,
#     another order, or two layers of a kind            likewise
#     a layer that is off                               the layer is left out, as in the general way
#     a limit that is off or in shadow                  its decision shows that, and nothing is given back then
#
# Tickets are made only when a caller reads them. On both ways, a request that is finished or given back twice counts
# once. `tests/shedding/test_fast_path.py` compares the fast path with the general way.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from reconverge.runtime.threads import Total
from reconverge.shedding.adaptive.concurrency import AdaptiveConcurrency, InSlot, SlotTicket
from reconverge.shedding.admission import Admission, DecidingStack
from reconverge.shedding.fleet import KEY, FleetShedder
from reconverge.shedding.layers import SERVED, Layer, Outcome, ShedRefusal, Ticket
from reconverge.shedding.rate import Charge, RequestRate
from reconverge.shedding.worker.shedder import Busy, WorkerShedder

if TYPE_CHECKING:
    from reconverge.decision import Decision

ORDER: Final = (RequestRate, AdaptiveConcurrency, FleetShedder, WorkerShedder)
"""The order of the layers for which the fast path works; each layer may be left out."""


class Passage(Admission):
    """The admission of a request by the fast path: one object in place of a record (ticket) for each layer.

    It is the `InSlot` of the concurrency layer, too.
    """

    # `FastPath.enter` sets what a constructor would: a constructor with so many arguments takes twice as long.

    __slots__ = (
        "aside",
        "began_ns",
        "busy",
        "charged",
        "fast_path",
        "forks",
        "held",
        "in_flight",
        "key",
        "reserved",
    )

    fast_path: FastPath
    key: str
    began_ns: int
    in_flight: int
    forks: int
    held: bool
    aside: bool
    charged: Decision | None
    """The decision of the `RequestRate` layer's limit; None without such a layer."""
    reserved: Decision | None
    """The decision of the `FleetShedder` layer's limit; None if that limit was not charged."""
    busy: Busy | None

    _refusal = None
    would_refuse = ()

    def __init__(self) -> None:
        pass

    @property
    def tickets(self) -> Sequence[Ticket]:
        """Returns a new record for each layer that keeps a slot for the request; none after the request's end."""
        if self.finished:
            return ()
        return self._tickets_of_all()

    def _tickets_of_all(self) -> list[Ticket]:
        fast_path = self.fast_path
        tickets: list[Ticket] = []
        if self.charged is not None and fast_path.rate is not None:
            tickets.append(Charge(fast_path.rate.limiter, self.key, self.charged))
        if fast_path.concurrency is not None and self.in_flight:
            tickets.append(SlotOf(self, fast_path.concurrency))
        if self.reserved is not None and fast_path.fleet is not None:
            tickets.append(Charge(fast_path.fleet.limiters[self.rank], KEY, self.reserved, shown=False))
        if self.busy is not None:
            tickets.append(self.busy)
        return tickets

    def finish(self, outcome: Outcome = SERVED) -> None:
        if self.finished:
            return
        self.finished = True
        fast_path = self.fast_path
        busy = self.busy
        if fast_path.concurrency is not None:
            now_ns = fast_path.now_ns()
            fast_path.concurrency.free(self, now_ns, outcome)
            if busy is not None:
                busy.finish(now_ns, outcome)
        elif busy is not None:
            busy.finish(fast_path.now_ns(), outcome)

    def give_back(self) -> None:
        """Undoes the charges and slots of the request, because a later layer has refused it or failed."""
        if self.finished:
            return
        self.finished = True
        for ticket in reversed(self._tickets_of_all()):
            ticket.give_back(self.began_ns)


class SlotOf(SlotTicket):
    """The record of the `AdaptiveConcurrency` layer for a request of the fast path; the `Passage` has the state."""

    __slots__ = ("_passage",)

    def __init__(self, passage: Passage, holder: AdaptiveConcurrency) -> None:
        self._passage = passage
        self.holder = holder

    @property
    def slot(self) -> InSlot:
        return self._passage


class FastPath:
    """Decides about requests by the usual layers of a stack in one function, faster than by calling each layer."""

    __slots__ = ("_admitted", "_chosen", "_refused", "concurrency", "fleet", "now_ns", "rate", "worker")

    def __init__(
        self,
        layers: Sequence[Layer],
        now_ns: Callable[[], int],
        admitted: Sequence[Total],
        refused: Mapping[str, Sequence[Total]],
    ) -> None:
        self.now_ns = now_ns
        self._admitted = admitted
        self._refused = refused
        self.rate: RequestRate | None = None
        self.concurrency: AdaptiveConcurrency | None = None
        self.fleet: FleetShedder | None = None
        self.worker: WorkerShedder | None = None
        for layer in layers:
            if isinstance(layer, RequestRate):
                self.rate = layer
            elif isinstance(layer, AdaptiveConcurrency):
                self.concurrency = layer
            elif isinstance(layer, FleetShedder):
                self.fleet = layer
            elif isinstance(layer, WorkerShedder):
                self.worker = layer
        self._chosen = () if self.worker is None else tuple(dither.chosen for dither in self.worker.dithers)

    def enter(self, stack: DecidingStack, key: str, rank: int) -> Admission:
        passage = Passage()
        passage._stack = stack  # noqa: SLF001  # what a constructor would set
        passage.fast_path = self
        passage.key = key
        passage.rank = rank
        passage.held = passage.aside = passage.finished = False
        passage.away = 0
        passage.charged = passage.reserved = passage.busy = None
        passage.in_flight = 0
        passage.began_ns = now_ns = self.now_ns()
        try:
            rate, concurrency, fleet, worker = self.rate, self.concurrency, self.fleet, self.worker
            if rate is not None:
                decision = rate.limiter.hit(key)
                if not decision.allowed:
                    return self._refusal(rate.refusal(key, decision), passage)
                passage.charged = decision
            if concurrency is not None:
                slots = concurrency.slots
                passage.in_flight = in_flight = slots.take(rank, now_ns)
                if not in_flight:
                    return self._refusal(concurrency.refusal(), passage)
                passage.forks = slots.forks
                passage.held = True
            if fleet is not None:
                decision = fleet.limiters[rank].hit(KEY)
                if decision.allowed:
                    fleet.memories[rank].admitted(now_ns)
                    passage.reserved = decision
                else:
                    refusal = fleet.refusal(rank, now_ns, decision)
                    if refusal is not None:
                        return self._refusal(refusal, passage)
            if worker is not None:
                if self._chosen[rank]():
                    return self._refusal(worker.refusal(now_ns), passage)
                if not worker.needs_loop:
                    passage.busy = worker.begin(now_ns)
        except BaseException:  # also what a signal handler raises
            passage.give_back()
            raise
        self._admitted[rank].add()
        return passage

    def _refusal(self, refusal: ShedRefusal, passage: Passage) -> Admission:
        passage.give_back()
        self._refused[refusal.layer][passage.rank].add()
        return Admission(passage._stack, (), refusal, ())  # noqa: SLF001  # as above


def fast_path_for(
    layers: Sequence[Layer],
    now_ns: Callable[[], int],
    admitted: Sequence[Total],
    refused: Mapping[str, Sequence[Total]],
) -> FastPath | None:
    """Returns the fast path through `layers`, which are all on; None if their classes or their order do not allow it.

    The fast path counts admitted requests in `admitted`, by class, and refused ones in `refused`, by layer and class.
    """
    places = [ORDER.index(type(layer)) for layer in layers if type(layer) in ORDER]  # no derived class: it may differ
    if len(places) < len(layers) or any(one >= other for one, other in pairwise(places)):
        return None
    return FastPath(layers, now_ns, admitted, refused)
