"""A few nodes and their hub that obey step by step: a vocabulary for comparing twins."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

from reconverge import Limit, RateLimiter, ReconvergeError, Reservation
from reconverge.clock import SECOND_NS, ManualClock
from reconverge.decision import Decision, Usage
from reconverge.hub.report import Batch
from reconverge.kernel import Kernel
from reconverge.limit import QUOTA_MAX
from reconverge.limiter.control import LimitControl
from reconverge.limiter.waiting.waiters import Steps, ThreadWaker, waiting_at
from reconverge.policies import choose
from reconverge.simulation.explore.node import INTERVAL_NS, START_S, SmallNode
from reconverge_sync.memory import MemoryHub

Data = dict[str, Any]
Step = list[Any]
"""A method and its arguments: `["allow", node, key, cost, times]`."""
NODES = 2
WAITERS_MAX = 8
JUMP_MAX_S = 40 * 86_400.0
LIFETIME_NS = 40 * 366 * 86_400 * SECOND_NS
"""A time longer than any process lives, in nanoseconds; clocks up to the year 2262 have room for it."""


class TwinNode(SmallNode):
    """A node whose names are the same in every process."""

    def __init__(self, clock: ManualClock, label: str, *, shards: int, keys_max: int) -> None:
        self._label = label
        self._sequence = count(1)
        super().__init__(clock, shards=shards, keys_max=keys_max)
        self.woken = 0
        """The number of decisions that have woken its loop."""
        self.kernel.wake = self._note_wake

    def _note_wake(self) -> None:
        self.woken += 1

    def _new_name(self) -> str:
        return f"{self._label}-{next(self._sequence)}"


class TwinWorld:
    """Nodes with the same limits, or one without a hub, and the tasks there that are not over."""

    def __init__(self, data: Data) -> None:
        self.clock = ManualClock(START_S)
        self.hub_clock = ManualClock(START_S + data["hub_ahead"])
        names = map(str, count(1))
        self.hub = MemoryHub(clock=self.hub_clock, shards=data["shards"], new_name=lambda: next(names))
        self.nodes: list[TwinNode] = []
        if data["alone"]:
            self.kernels = [self._lone_kernel(data["keys_max"])]
        else:
            self.nodes = [
                TwinNode(self.clock, label, shards=data["shards"], keys_max=data["keys_max"]) for label in "ab"[:NODES]
            ]
            self.kernels = [node.kernel for node in self.nodes]
        self.limits = [Limit(**fields) for fields in data["limits"]]
        self.limiters = [self._limiters(kernel, data) for kernel in self.kernels]
        self.reservations: list[Reservation] = []
        self.waiters: list[Steps] = []
        self.late: list[Batch] = []

    def _lone_kernel(self, keys_max: int) -> Kernel:
        return Kernel(
            self.clock,
            namespace="test",
            interval_ns=INTERVAL_NS,
            interval_min_ns=INTERVAL_NS // 10,
            keys_max=keys_max,
            key_bytes_max=256,
            alone=True,
        )

    def _limiters(self, kernel: Kernel, data: Data) -> list[RateLimiter]:
        policy = choose(**data["policy"])
        quotas = {"limit" if number == 1 else f"limit#{number}": limit for number, limit in enumerate(self.limits, 1)}
        if data["tier"] is not None:
            tiers = {"limit@one": self.limits[0], "limit@two": Limit(**data["tier"])}
            return [
                RateLimiter(LimitControl(kernel.tier(each, limit, policy, reported_as="limit")))
                for each, limit in tiers.items()
            ]
        whole = kernel.composites.declare("limit", quotas, policy)
        if data["share"] is None:
            return [RateLimiter(LimitControl(whole))]
        share = {"share": Limit(**data["share"])}
        return [
            RateLimiter(LimitControl(kernel.composites.declare("share", share, policy, parents=whole.tables))),
            RateLimiter(LimitControl(whole)),
        ]

    # ------------------------------------------------------------ doing a step

    def does(self, step: Step) -> Any:
        """Makes a step. Returns the result; the error of a mistake is a result, too."""
        name, *arguments = step
        try:
            return getattr(self, name)(*arguments)
        except ReconvergeError as error:
            return [type(error).__name__, str(error)]

    def _limiter(self, node: int) -> RateLimiter:
        """Returns the limiter of node 0, 1 and so on; after all nodes, their other limiters, if they have several."""
        all_of_them = [limiters[place] for place in range(len(self.limiters[0])) for limiters in self.limiters]
        return all_of_them[node % len(all_of_them)]

    def _cost(self, cost: Any) -> Any:
        """Returns a cost: three numbers stand for a part of the capacity and some more."""
        if not isinstance(cost, list):
            return cost
        part, of, more = cost
        return max(0, self.limits[0].capacity * part // of + more)

    def allow(self, node: int, key: Any, cost: Any, times: int, kind: Any = None) -> list[bool]:
        limiter, cost = self._limiter(node), self._cost(cost)
        if kind is not None:
            return [limiter.allow(key, cost, kind) for _ in range(times)]
        return [limiter.allow(key, cost) if cost != 1 else limiter.allow(key) for _ in range(times)]

    def many(self, node: int, keys: list[Any], costs: Any) -> list[bool]:
        """Asks about many keys at once."""
        if costs is not None:
            costs = [self._cost(cost) for cost in costs]
        return self._limiter(node).allow_many(keys, costs)

    def looks(self) -> list[str]:
        return [cell.key for kernel in self.kernels for table in kernel.tables.values() for cell in table.all_cells()]

    def hit(self, node: int, key: Any, cost: Any, kind: Any = None) -> Decision:
        """Asks, with the grounds of the decision."""
        return self._limiter(node).hit(key, self._cost(cost), kind)

    def hits(self, node: int, key: Any, cost: Any, times: int) -> list[Decision]:
        """Asks several times with the grounds; later requests are charged at once."""
        limiter, cost = self._limiter(node), self._cost(cost)
        return [limiter.hit(key, cost) for _ in range(times)]

    def test(self, node: int, key: Any, cost: Any, kind: Any = None) -> Decision:
        return self._limiter(node).test(key, self._cost(cost), kind)

    def test_each(self, node: int, key: Any, cost: Any, kind: Any = None) -> list[Decision]:
        """Tests each quota several times."""
        cost = self._cost(cost)
        return [table.test(key, cost, kind) for table in self._limiter(node).control.tables]

    def usages(self, node: int, key: Any) -> dict[str, Usage]:
        return self._limiter(node).usages(key)

    def reset(self, node: int, key: Any) -> None:
        self._limiter(node).reset(key)

    def changes(self, node: int, times: float, burst_times: float) -> None:
        """Multiplies the first declared quota of a limiter, and its burst, if it has one."""
        limiter = self._limiter(node)
        first, *others = limiter.control.own_limits
        quota = max(1, min(int(self.limits[0].quota * times), QUOTA_MAX))
        burst = None if first.burst is None else max(1, min(int(first.nominal * burst_times), QUOTA_MAX))
        limiter.change([replace(first, quota=quota, burst=burst), *others])

    def warm(self, node: int, keys: list[Any]) -> None:
        self._limiter(node).warm(keys)

    def refund(self, node: int, key: Any, cost: Any) -> None:
        self._limiter(node).refund(key, self._cost(cost))

    def reserve(self, node: int, key: Any, estimate: Any, on_abandon: Any = "keep") -> Decision:
        reservation = self._limiter(node).reserve(key, self._cost(estimate), on_abandon=on_abandon)
        self.reservations.append(reservation)
        return reservation.decision

    def settle(self, number: int, actual: Any) -> None:
        """Charges the true cost of a reservation."""
        if self.reservations:
            self.reservations[number % len(self.reservations)].settle(self._cost(actual))

    def spend(self, number: int, cost: Any) -> None:
        """Spends a part of an estimate, or more."""
        if self.reservations:
            self.reservations[number % len(self.reservations)].spend(self._cost(cost))

    def leave(self, number: int) -> None:
        if self.reservations:
            with self.reservations.pop(number % len(self.reservations)):
                pass

    def wait(self, node: int, key: Any, cost: Any, timeout: Any, max_queue: Any) -> Any:
        table = self._limiter(node)._table
        costs = table.costs_of(self._cost(cost), None)
        self.waiters.append(waiting_at(table).steps(key, costs, timeout, max_queue, ThreadWaker()))
        if len(self.waiters) > WAITERS_MAX:
            self.waiters.pop(0).close()
        return self.turn(-1)

    def turn(self, number: int) -> Any:
        """Lets a waiter try again. Returns the time that it goes on sleeping, or the answer."""
        if not self.waiters:
            return None
        waiter = self.waiters[number % len(self.waiters)]
        try:
            return next(waiter)
        except StopIteration as end:
            self.waiters.remove(waiter)
            return end.value
        except ReconvergeError:
            self.waiters.remove(waiter)
            raise

    # ------------------------------------------------------------ time

    def passes(self, part: float, more_ns: int = 0) -> None:
        """Lets a part of a window pass, and some more time."""
        self._passes_ns(int(part * self.limits[0].window_ns) + more_ns)

    def edge(self, before_ns: int) -> None:
        """Lets time pass until shortly before the next window of the hub's clock."""
        window_ns = self.limits[0].window_ns
        self._passes_ns(max(0, window_ns - self.hub_clock.wall_ns() % window_ns - before_ns))

    def lease_ends(self, node: int, before_ns: int) -> None:
        """Lets time pass until shortly before the end of a node's lease, if it has one."""
        if self.nodes:
            until_ns = self.nodes[node % NODES].kernel.shards[0].lease_until_ns
            self._passes_ns(max(0, until_ns - before_ns - self.clock.monotonic_ns()))

    def _passes_ns(self, nanoseconds: int) -> None:
        nanoseconds = min(nanoseconds, LIFETIME_NS - self.clock.monotonic_ns())
        self.clock.advance_ns(nanoseconds)
        self.hub_clock.advance_ns(nanoseconds)

    def jump(self, part: float) -> None:
        """Sets the nodes' wall clock."""
        self.clock.jump(self._jump_s(part))

    def hub_jumps(self, part: float) -> None:
        """Sets the hub's clock."""
        self.hub_clock.jump(self._jump_s(part))

    def _jump_s(self, part: float) -> float:
        """Returns a number of windows in seconds, if that is not too long for a calendar."""
        return max(-JUMP_MAX_S, min(JUMP_MAX_S, part * self.limits[0].window))

    # ------------------------------------------------------------ the hub

    def sends(self, node: int) -> Any:
        return self.nodes[node % NODES].sends() if self.nodes else None

    def reaches(self, node: int) -> Any:
        if not self.nodes:
            return None
        chosen = self.nodes[node % NODES]
        chosen.reaches(self.hub)
        return None if chosen.flight is None else chosen.flight.answer

    def hears(self, node: int) -> None:
        if self.nodes:
            self.nodes[node % NODES].hears()

    def gives_up(self, node: int) -> None:
        """Loses a batch, or makes it late."""
        batch = self.nodes[node % NODES].gives_up() if self.nodes else None
        if batch is not None:
            self.late = [*self.late[-3:], batch]

    def fails(self, node: int, key: Any, part: float) -> Batch | None:
        """Makes a node ask for much; an exchange is answered, the next one fails, and another comes later."""
        self.allow(node, key, 1, 20)
        self.goes_on(2, 0.02, 1000)
        self.sends(node)
        self.gives_up(node)
        self.passes(part)
        again: Batch | None = self.sends(node)
        self.reaches(node)
        self.hears(node)
        return again

    def late_ones_arrive(self) -> None:
        for batch in self.late:
            self.hub.merge(batch)

    def goes_on(self, rounds: int, part: float, lag_ns: int) -> list[Batch | None]:
        """Lets all nodes exchange, and time pass, on the way and afterwards."""
        batches: list[Batch | None] = []
        for _ in range(rounds):
            for node in self.nodes:
                batches.append(node.sends())
                self._passes_ns(lag_ns)
                node.reaches(self.hub)
                self._passes_ns(lag_ns)
                node.hears()
            self.passes(part)
        return batches

    def rush(self, key: Any, times: int, rounds: int, part: float) -> list[Decision]:
        """Makes all nodes ask and exchange, and ask once more a part of a window later."""
        for _ in range(rounds):
            for limiters in self.limiters:
                for _ in range(times):
                    limiters[0].allow(key)
            self.goes_on(1, 0.02, 1000)
        self.passes(part)
        return [limiters[0].hit(key) for limiters in self.limiters]

    def lose_data(self) -> None:
        """Empties the hub; all nodes know the name of the new data."""
        self.hub.lose_data()
        for number, shard in enumerate(self.hub._shards):
            shard.generation = f"lost at {self.clock.monotonic_ns()}, {number}"

    def departs(self, node: int) -> list[Batch | None]:
        """Makes a node send its last report, and go on under a new name."""
        if not self.nodes:
            return []
        chosen = self.nodes[node % NODES]
        self.gives_up(node)
        chosen.syncer.leave(self.clock.monotonic_ns())
        batches: list[Batch | None] = []
        for _ in range(4):
            batches.append(chosen.sends())
            chosen.reaches(self.hub)
            chosen.hears()
        return batches

    def sleeps(self, node: int) -> list[int]:
        """Lets the loop of a node sleep until something is due. Returns that time, for each shard."""
        if not self.nodes:
            return []
        chosen, now_ns = self.nodes[node % NODES], self.clock.monotonic_ns()
        looks_ns = [syncer.looks_ns(now_ns) for syncer in chosen.syncers]
        for syncer, until_ns in zip(chosen.syncers, looks_ns, strict=True):
            syncer.attend(until_ns + SECOND_NS)
            syncer.sleep_until(until_ns)
        return looks_ns

    def awakes(self, node: int) -> None:
        """Lets the loop of a node work."""
        for syncer in self.nodes[node % NODES].syncers if self.nodes else ():
            syncer.stay_awake()

    def parts(self, node: int) -> None:
        """Leaves a node without a loop."""
        if self.nodes:
            self.nodes[node % NODES].syncer.part()

    def attends(self, node: int, part: float) -> None:
        """Gives a node a loop for a part of a window."""
        if self.nodes:
            until_ns = self.clock.monotonic_ns() + int(part * self.limits[0].window_ns)
            self.nodes[node % NODES].syncer.attend(until_ns)

    def forks(self, node: int) -> None:
        """Makes a node forget everything, as in a forked child."""
        if not self.nodes or self.nodes[node % NODES].flight is None:
            self._end_waiting()
            self.kernels[node % len(self.kernels)].forget_everything()

    def ends(self) -> None:
        self._end_waiting()

    def _end_waiting(self) -> None:
        while self.waiters:
            self.waiters.pop().close()
