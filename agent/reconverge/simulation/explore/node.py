"""One node of a small world: the real kernel and the real syncer, without a loop, a network or threads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from reconverge.clock import SECOND_NS, ManualClock
from reconverge.exchange.syncer import SILENCE_NS, Syncer
from reconverge.hub.merge_rule import MergeRule
from reconverge.hub.report import Answer, Batch
from reconverge.kernel import Cell, Kernel, Table, gate_of
from reconverge.limit import Limit
from reconverge.policies import Policy

START_S: Final = 1_750_000_000.0
INTERVAL_NS: Final = SECOND_NS // 10
LEASE_NS: Final = 3 * SECOND_NS
"""The lease of a node: much shorter than a real one, so that it ends within a window or two."""
MARK: Final = "~"
"""The first character of every node's name; no other text in a small world begins with it."""


DOWN_FROM: Final = 999


class Serial:
    """A counter that belongs to a world: if the world is put back to an earlier state, so is the counter."""

    def __init__(self, *, downwards: bool = False) -> None:
        self.given = 0
        self._downwards = downwards

    def next(self) -> int:
        """Returns the next number of the counter: 1, 2, 3, ..., or 998, 997, 996, ... if it counts downwards."""
        self.given += 1
        return DOWN_FROM - self.given if self._downwards else self.given


NUMBERS: Final = Serial()
"""The numbers of all nodes of this process, except for nodes in worlds with a counter of their own."""


class NoJitter(Random):
    """A generator that always draws 0.5, so that intervals between exchanges do not vary."""

    def random(self) -> float:
        return 0.5


@dataclass
class InFlight:
    """A batch on its way to the hub, with the hub's answer once the hub has merged it."""

    batch: Batch
    sent_ns: int
    answer: Answer | None = None


class SmallNode:
    """One node: the real kernel and the real syncer. Its caller decides when it sends a batch and what reaches it."""

    def __init__(
        self,
        clock: ManualClock,
        *,
        shards: int = 1,
        keys_max: int = 1000,
        interval_ns: int = INTERVAL_NS,
        numbers: Serial = NUMBERS,
    ) -> None:
        self.clock = clock
        self.number = numbers.next()
        self.name = f"{MARK}{self.number}"
        self._names = Serial()
        self.charged = 0
        """The cost that this node has admitted since it was started."""
        self.refunded = 0
        self.asked: list[tuple[str, int, list[Cell]]] = []
        """The requests that wait for the hub's answer, each with its key, its cost and the cells in which it waits."""
        self.kernel = Kernel(
            clock,
            namespace="test",
            interval_ns=interval_ns,
            interval_min_ns=interval_ns // 10,
            keys_max=keys_max,
            key_bytes_max=256,
            shards=shards,
            lease_ns=LEASE_NS,
        )
        self.syncers = [
            Syncer(self.kernel, shard=shard, random=NoJitter(), new_name=self._new_name, now_ns=clock.monotonic_ns())
            for shard in range(shards)
        ]
        self.syncer = self.syncers[0]
        self.flight: InFlight | None = None

    def _new_name(self) -> str:
        return f"{self.name}-{self._names.next()}"

    def limit(self, limit: Limit, policy: Policy, name: str = "limit") -> Table:
        return self.kernel.declare(name, limit, policy)

    def asks(self, table: Table, key: str, cost: int) -> None:
        """Makes a request for `key` begin to wait for the hub's answer."""
        cells: list[Cell] = []
        table.asks = True
        gate_of(table).queue_up(key, table.costs_of(cost), cells)
        self.asked.append((key, cost, cells))

    def stops_asking(self, table: Table) -> Iterator[tuple[str, int]]:
        """Ends the waiting of all requests. Yields the key and the cost of each request that is then admitted."""
        gate, asked, self.asked = gate_of(table), self.asked, []
        for key, cost, cells in asked:
            costs = table.costs_of(cost)
            if gate.try_turn(key, costs, again=True).decision is not None:
                yield key, cost
            gate.step_out(cells, costs)

    def cancels_asks(self, table: Table) -> None:
        """Ends the waiting of all requests and admits none of them."""
        asked, self.asked = self.asked, []
        for _, cost, cells in asked:
            gate_of(table).step_out(cells, table.costs_of(cost))

    def sends(self) -> Batch | None:
        """Puts a batch on its way and returns it; None if another is on its way, or the node has nothing to report."""
        if self.flight is not None:
            return None
        now_ns = self.clock.monotonic_ns()
        batch = self.syncer.take(now_ns)
        if batch is not None:
            self.flight = InFlight(batch, now_ns)
        return batch

    def reaches(self, hub: MergeRule) -> None:
        """Delivers the batch on its way to the hub, which merges it and answers."""
        if self.flight is not None and self.flight.answer is None:
            self.flight.answer = hub.merge(self.flight.batch)

    def hears(self) -> None:
        """Delivers the hub's answer to this node, if the hub has answered."""
        flight = self.flight
        if flight is not None and flight.answer is not None:
            self.flight = None
            self.syncer.merged(flight.batch, flight.answer, sent_ns=flight.sent_ns, now_ns=self.clock.monotonic_ns())

    def gives_up(self) -> Batch | None:
        """Stops waiting for the answer to the batch on its way. Returns that batch, or None if none was on its way.

        The batch may still arrive.
        """
        if self.flight is None:
            return None
        flight, self.flight = self.flight, None
        self.syncer.failed("timeout", now_ns=self.clock.monotonic_ns())
        return flight.batch

    def exchanges_with(self, hub: MergeRule, rounds: int = 1) -> None:
        """Exchanges with the hub `rounds` times, while the clock stands still."""
        for _ in range(rounds):
            self.sends()
            self.reaches(hub)
            self.hears()

    def reports_everything_to(self, hub: MergeRule) -> None:
        """Exchanges while time passes, until all is reported and the node would have noticed that the hub lost data."""
        for done in range(50):
            self.exchanges_with(hub)
            self.clock.advance_ns(max(INTERVAL_NS, SILENCE_NS))
            if done > 3 and not any(table.tallies[0].changed for table in self.kernel.tables.values()):
                return
        raise AssertionError("this node still has changes to report after 50 exchanges: a bug in its exchanges")
