"""A stack of layers: decides about each request once, and gives back the charges of earlier layers when one refuses."""

# Theory of operation.
#
# The layers are asked in the order in which they are given, which should be from the caller's own limit to the state of
# this worker: request rate, concurrency, fleet, worker. The first that refuses decides, and names itself. The layers
# before it give back all that they hold for the request, the last layer first, as if it had never come: a request that
# the worker sheds uses up nothing of its sender's quota.
#
# A layer in shadow is asked as well, and requests that it would have refused are counted and reported, and go on. A
# layer that is off is not asked.
#
# A decision never waits and cannot be cancelled halfway, so a cancelled request never holds the slots of only some
# layers. An admitted request holds its slots until `finish`, which may be called from any thread, and any number of
# times.

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reconverge.agent.snapshots.load_snapshot import observe
from reconverge.clock import SECOND_NS, Clock, SystemClock
from reconverge.errors import InvalidSetting, asked
from reconverge.limiter.enforcement.switches import OFF, ON, SHADOW, Switch, checked_switch
from reconverge.limiter.faces.limiter import Limiter
from reconverge.runtime.locks import new_lock
from reconverge.runtime.log_throttle import LoggedOnce
from reconverge.runtime.process import register
from reconverge.runtime.threads import Total
from reconverge.shedding.adaptive.concurrency import AdaptiveConcurrency
from reconverge.shedding.admission import REMEDY, Admission
from reconverge.shedding.classes import TrafficClasses
from reconverge.shedding.fast_path import FastPath, fast_path_for
from reconverge.shedding.layers import IGNORED, Arrival, Layer, ShedRefusal, Ticket
from reconverge.shedding.worker.shedder import WorkerShedder

logger = logging.getLogger("reconverge")

LAYERS_MAX: Final = 16
NAME_LENGTH_MAX: Final = 100
DROPPED_NS: Final = SECOND_NS
"""The nanoseconds for which an admission that a program dropped unfinished keeps its slots: its request may be
running."""
NO_KEY: Final = "(none)"
"""The key under which requests without a key are counted together."""


@dataclass(frozen=True, slots=True)
class StackStats:
    """The counts of a stack's decisions, by class or by layer and class, and its layers' switches and measurements."""

    admitted: Mapping[str, int]
    refused: Mapping[str, Mapping[str, int]]
    would_refuse: Mapping[str, Mapping[str, int]]
    """The number of requests that each layer would have refused, were it not in shadow, by layer and class."""
    switches: Mapping[str, Switch]
    readings: Mapping[str, Mapping[str, float]]
    dropped: int = 0
    """How many admissions the program dropped without finishing them; the stack has freed their slots."""


class Stack:
    """The layers of load shedding in front of one process. Thread-safe; deciding never waits.

    Args:
        layers: in the order in which they decide; without any, adaptive concurrency and the worker shedder, which
            need no configuration but the classes.
        classes: the classes of traffic, which all layers share; by default those of the layers, or the four of
            `TrafficClasses`.
        switches: "on", "shadow" or "off" by the names of layers; see `switch`.
        name: the stack's name in a console, which shows stacks of one name on all nodes together.
        clock: for tests.

    Raises InvalidSetting if two layers have the same name or different classes, if there are more than 16 layers, and
    for an unknown switch.
    """

    def __init__(
        self,
        *layers: Layer,
        classes: TrafficClasses | None = None,
        switches: Mapping[str, Switch] | None = None,
        name: str = "stack",
        clock: Clock | None = None,
    ) -> None:
        self.name: Final = _checked_name(name)
        known = [each for each in (getattr(layer, "classes", None) for layer in layers) if each is not None]
        self.classes: TrafficClasses = classes or (known[0] if known else TrafficClasses())
        if any(each.names != self.classes.names for each in known):
            raise InvalidSetting(
                "classes", self.classes.names, "are not those of all layers; give all layers the same classes"
            )
        if not layers:
            layers = (
                AdaptiveConcurrency(classes=self.classes),
                WorkerShedder(classes=self.classes, clock=clock),
            )
        self.layers: Final = _checked(layers)
        self.clock: Clock = SystemClock() if clock is None else clock
        self._now = self.clock.monotonic_ns
        self._switching = new_lock()
        self._switches: dict[str, Switch] = {layer.name: ON for layer in layers}
        self._begin_counting()
        self._fast_path: FastPath | None = None
        self._asked: tuple[tuple[Callable[[Arrival], Ticket | ShedRefusal | None], Layer, bool], ...] = ()
        self._apply()
        for layer_name, to in (switches or {}).items():
            self.switch(layer_name, to)
        observe(self)
        register(self, sigterm=False)

    def _begin_counting(self) -> None:
        names = self.classes.names
        self._admitted = [Total() for _ in names]
        self._refused = {layer.name: [Total() for _ in names] for layer in self.layers}
        self._would_refuse = {layer.name: [Total() for _ in names] for layer in self.layers}
        self._lost: deque[tuple[int, Admission]] = deque()
        """Admissions that the program dropped unfinished, each with the monotonic time in nanoseconds at which it
        ends."""
        self._dropped = Total()
        self._lost_logged = LoggedOnce()

    def start_over_after_fork(self) -> None:
        """Sets the counts to zero in a forked child, as they belong to the parent."""
        self._begin_counting()
        self._apply()

    def stop_for_good(self, timeout_s: float) -> None:
        """Does nothing, because a stack has no thread of its own to stop at the end of the process."""

    @property
    def needs_loop(self) -> bool:
        """Returns whether a layer needs an event loop to measure; without a loop, that layer refuses nothing."""
        return any(getattr(layer, "needs_loop", False) for layer in self.layers)

    def switch(self, layer: str, to: Switch) -> None:
        """Switches a layer to "on", "off" or "shadow" (refuse nothing), from the next request on.

        Raises InvalidSetting for an unknown layer or an unknown switch.
        """
        if layer not in self._switches:
            known = ", ".join(self._switches)
            raise InvalidSetting(
                "layer", layer, f"is no layer of this stack; known: {known}{asked(layer, self._switches)}"
            )
        with self._switching:
            self._switches[layer] = checked_switch(to)
            self._apply()

    def _apply(self) -> None:
        switched = [(layer, self._switches[layer.name]) for layer in self.layers]
        self._asked = tuple((layer.enter, layer, switch == SHADOW) for layer, switch in switched if switch != OFF)
        in_force = [layer for layer, switch in switched if switch != OFF]
        plain = all(switch != SHADOW for _, switch in switched)
        self._fast_path = fast_path_for(in_force, self._now, self._admitted, self._refused) if plain else None

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Makes the layers that measure an event loop measure `loop`. Called from the loop's own thread."""
        for layer in self.layers:
            watch: Any = getattr(layer, "watch", None)
            if watch is not None:
                watch(loop)

    def serves(self, port: int) -> None:
        """Makes the layers that measure an event loop also count the connections that wait at the TCP port `port`."""
        for layer in self.layers:
            if isinstance(layer, WorkerShedder):
                layer.serves(port)

    def enter(self, key: str = NO_KEY, traffic_class: str | None = None) -> Admission:
        """Decides about one request. An admission that is true must be finished; the end of a `with` block does that.

        `traffic_class` is by default the least important class. Raises InvalidSetting for an unknown class, and errors
        of layers, such as InvalidKey; after an error no slot or charge is held.
        """
        names = self.classes.names
        if traffic_class is not None and traffic_class not in names and key in names:
            problem = f"is none of {', '.join(names)}, but the key is {key!r}; write enter(key, traffic_class)"
            raise InvalidSetting("traffic class", traffic_class, problem)
        return self.enter_ranked(key, len(names) - 1 if traffic_class is None else self.classes.rank(traffic_class))

    def enter_ranked(self, key: str, rank: int) -> Admission:
        """Decides about one request as `enter` does, for the class number `rank`; 0 is the most important class."""
        if self._lost:
            self._end_lost()
        fast_path = self._fast_path
        return self._enter(key, rank) if fast_path is None else fast_path.enter(self, key, rank)

    def _enter(self, key: str, rank: int) -> Admission:
        arrival = Arrival(key, rank, self._now())
        tickets: list[Ticket] = []
        shadowed: tuple[ShedRefusal, ...] = ()
        try:
            for enter, layer, in_shadow in self._asked:
                answer = enter(arrival)
                if answer is None:
                    continue
                if isinstance(answer, ShedRefusal):
                    if not in_shadow:
                        _give_back(tickets, arrival.now_ns)
                        self._refused[layer.name][rank].add()
                        return Admission(self, (), answer, shadowed)
                    shadowed = (*shadowed, answer)
                    self._would_refuse[layer.name][rank].add()
                    answer = layer.enter_anyway(arrival)
                    if answer is None:
                        continue
                tickets.append(answer)
        except BaseException:  # also what a signal handler raises
            _give_back(tickets, arrival.now_ns)
            raise
        self._admitted[rank].add()
        return Admission(self, tickets, None, shadowed, rank)

    def refuses_late(self, refusal: ShedRefusal, rank: int) -> bool:
        """Counts a layer's refusal of a request that was admitted before, and has waited for its client.

        Returns whether the refusal ends the request: False if the layer is in shadow.
        """
        refuses = self._switches[refusal.layer] == ON
        (self._refused if refuses else self._would_refuse)[refusal.layer][rank].add()
        return refuses

    def lose(self, admission: Admission, *, over: bool) -> None:
        """Stores an admission that was dropped unfinished, so that the next request finishes it.

        Takes no lock, because a finalizer calls this.

        A request that is not known to be `over` counts as running for another second.
        """
        if over:
            self._lost.appendleft((0, admission))
        else:
            self._lost.append((self._now() + DROPPED_NS, admission))

    def _end_lost(self) -> None:
        if self._lost and self._lost_logged.is_new():
            logger.warning(
                "reconverge: a request was dropped and its admission never finished, so its slot is taken for a second "
                "more, or until the garbage collector finds it; write: with %s, or call admission.finish(), and close "
                "each body of a WSGI response",
                REMEDY,
            )
        now_ns = self._now()
        while self._lost:
            try:
                lost = self._lost.popleft()
            except IndexError:  # another thread has taken it
                return
            due_ns, admission = lost
            if now_ns < due_ns:
                self._lost.appendleft(lost)
                return
            admission.finish(IGNORED)
            self._dropped.add()

    def now_ns(self) -> int:
        """Returns the time of the monotonic clock, in nanoseconds."""
        return self._now()

    def stats(self) -> StackStats:
        """Returns the stack's counts and its layers' measured values as they are now."""
        self._end_lost()
        names = self.classes.names
        return StackStats(
            admitted=_by_class(names, self._admitted),
            refused={name: _by_class(names, totals) for name, totals in self._refused.items()},
            would_refuse={name: _by_class(names, totals) for name, totals in self._would_refuse.items()},
            switches=dict(self._switches),
            readings={layer.name: dict(layer.readings()) for layer in self.layers},
            dropped=self._dropped.value,
        )


def _give_back(tickets: Sequence[Ticket], now_ns: int) -> None:
    for ticket in reversed(tickets):
        ticket.give_back(now_ns)


def _by_class(names: Sequence[str], totals: Sequence[Total]) -> dict[str, int]:
    return {name: total.value for name, total in zip(names, totals, strict=True)}


def _checked_name(name: object) -> str:
    """Returns the name of a stack. Raises InvalidSetting unless it is 1 to 100 printable characters."""
    if not isinstance(name, str) or not name.isprintable() or not 1 <= len(name) <= NAME_LENGTH_MAX:
        raise InvalidSetting("name", name, f"must have 1 to {NAME_LENGTH_MAX} printable characters")
    return name


def _checked(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    if len(layers) > LAYERS_MAX:
        raise InvalidSetting("layers", len(layers), f"are too many; a stack has at most {LAYERS_MAX}")
    names: set[str] = set()
    for layer in layers:
        name = getattr(layer, "name", None)
        methods = all(callable(getattr(layer, each, None)) for each in ("enter", "enter_anyway", "readings"))
        if isinstance(layer, Limiter):
            raise InvalidSetting(
                "layers", layer, "is a limiter, not a layer; for a limit on a rate, pass RequestRate(limiter)"
            )
        if isinstance(layer, type):
            problem = f"is a class, not a layer; pass an object of it: Stack({layer.__name__}(...))"
            raise InvalidSetting("layers", layer, problem)
        if not isinstance(name, str) or not methods:
            raise InvalidSetting(
                "layers", layer, "is not a layer; pass layers such as RequestRate(limiter), each as an argument"
            )
        if name in names:
            raise InvalidSetting("layers", name, "is the name of two layers; pass name=... to one of them")
        names.add(name)
    return tuple(layers)
