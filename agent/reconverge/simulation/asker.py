"""Requests of a simulated fleet that ask the hub in doubt: production code runs them, under virtual time."""

# `Asking.steps` yields for how long to sleep, and is woken by answers. Where an application has a coroutine or a thread
# to sleep in, the world has an event at the end of the sleep, and another one at each wake-up, after all other events
# of that moment.

from __future__ import annotations

from random import Random
from typing import Final, Protocol

from reconverge.clock import NEVER_NS
from reconverge.errors import CostExceedsQuota
from reconverge.simulation.asked import Judged
from reconverge.simulation.fleet import AskSettings, Fleet, FleetMember
from reconverge.simulation.pattern import SimulatedArrival

ASKS_SHARE: Final = 0.5
CANCELLED_ROUND_TRIPS: Final = 2


class Stage(Protocol):
    """The part of the simulated world that `SimulatedAsk` uses: its times, its plan of events and its record."""

    now_ns: int
    begin_ns: int
    waited_for_ns: dict[str, int]
    fleet: Fleet
    chance: Random
    askers: dict[SimulatedAsk, None]

    def call_at(self, moment_ns: int, asker: SimulatedAsk) -> None:
        """Plans an event at `moment_ns`, at which `asker` checks whether the hub has answered it."""
        ...

    def note(self, number: int, arrival: SimulatedArrival, judged: Judged, *, asked: bool = False) -> None:
        """Records the decision just made about request `number`; `asked` if the request asked the hub."""
        ...


class SimulatedAsk:
    """One simulated request that may ask the hub in doubt; the limiter wakes it as it would wake a real thread."""

    gone = False

    def __init__(self, world: Stage, node: FleetMember, number: int, arrival: SimulatedArrival) -> None:
        asks = world.fleet.asks
        assert asks is not None
        self.due_ns = NEVER_NS
        """The simulated time, in nanoseconds, at which the request goes on even if the hub has not answered."""
        self.node = node
        self._world = world
        self._process = node.asked
        self._request = number, arrival
        self._rung = False
        self._cancelled_ns: int | None = None
        self._steps = node.asked.ask(arrival.key, arrival.cost, asks.within_ns, self)

    def go_on(self) -> None:
        """Continues the request until it is decided, or has to sleep."""
        world, asked = self._world, self in self._world.askers
        try:
            sleep_ns = next(self._steps)
        except StopIteration as end:
            self._end()
            world.note(*self._request, end.value, asked=asked)
        except CostExceedsQuota:
            self._end()
        else:
            self.due_ns = world.now_ns + sleep_ns
            if not asked:
                self._begin_to_wait(sleep_ns)
            world.call_at(self.due_ns, self)

    def wake(self) -> None:
        if not self._rung:
            self._rung = True
            self._world.call_at(self._world.now_ns, self)

    def look(self) -> None:
        """Continues the request if its sleep is over or the hub has answered it; does nothing if it has ended.

        If the request was cancelled or its process has died, ends it undecided.
        """
        world = self._world
        if self not in world.askers:
            return  # this request has ended meanwhile
        cancelled = self._cancelled_ns is not None and world.now_ns >= self._cancelled_ns
        if cancelled or not self.node.serves or self.node.asked is not self._process:
            self._steps.close()
            self._end()
        elif self._rung or world.now_ns >= self.due_ns:
            self._rung = False
            self.go_on()

    def _begin_to_wait(self, sleep_ns: int) -> None:
        world, asks = self._world, self._world.fleet.asks
        world.askers[self] = None
        world.waited_for_ns.setdefault(self._request[1].key, world.begin_ns + world.now_ns)
        assert asks is not None
        if asks.cancelled and world.chance.random() < asks.cancelled:
            soon_ns = min(sleep_ns, CANCELLED_ROUND_TRIPS * world.fleet.round_trip_ns)  # mostly before the answer
            self._cancelled_ns = world.now_ns + int(world.chance.random() * soon_ns)
            world.call_at(self._cancelled_ns, self)

    def _end(self) -> None:
        self._world.askers.pop(self, None)


def perhaps_asks(random: Random, fleet: Fleet) -> AskSettings | None:
    """Draws whether requests of a fuzz case ask the hub. Returns their settings; None for a case in which none asks."""
    return draw_asks(random, fleet) if random.random() < ASKS_SHARE else None


def draw_asks(random: Random, fleet: Fleet) -> AskSettings:
    """Draws the settings of a fuzz case's asking requests: their nodes, their share, and how many are cancelled.

    Some wait about as long as a round trip takes, so that some answers come too late; others wait much longer.
    """
    return AskSettings(
        within_ns=max(1, int(fleet.round_trip_ns * 10 ** random.uniform(-0.05, 1.3))),
        nodes=random.choice([None, None, random.randint(1, fleet.nodes)]),
        share=random.choice([1.0, 1.0, random.random()]),
        cancelled=random.choice([0.0, 0.1, 0.5]),
    )
