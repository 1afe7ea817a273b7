"""A vocabulary for tests of the protocol: nodes without loops, a hub without a network, and a ledger of the truth."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from random import Random

from reconverge.clock import SECOND_NS, ManualClock
from reconverge.exchange.syncer import SILENCE_NS, Syncer
from reconverge.hub.report import Answer, Batch
from reconverge.kernel import Cell, Kernel, Table, gate_of
from reconverge.limit import Limit
from reconverge.limit.limit import PACED
from reconverge.policies import Policy
from reconverge.simulation.truth import at_once
from reconverge_sync.memory import MemoryHub

START_S = 1_750_000_000.0
INTERVAL_NS = SECOND_NS // 10
LEASE_NS = 3 * SECOND_NS
"""Much shorter than any real lease, so that it ends within a window or two."""
_numbers = count(1)


@dataclass
class InFlight:
    """A batch on its way, and the answer once there is one."""

    batch: Batch
    sent_ns: int
    answer: Answer | None = None


class Node:
    """One node: the real kernel and the real syncer, told by the test when to speak and what arrives."""

    def __init__(
        self, clock: ManualClock, *, shards: int = 1, keys_max: int = 1000, interval_ns: int = INTERVAL_NS
    ) -> None:
        self.clock = clock
        self.number = next(_numbers)
        self.name = f"n{self.number}"
        self._names = count(1)
        self.charged = 0
        """This node's admissions in its life."""
        self.refunded = 0
        self.asked: list[tuple[str, int, list[Cell]]] = []
        """Requests that wait for the hub's word: the key, the cost, and where they wait."""
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
            Syncer(self.kernel, shard=shard, random=Random(0), new_name=self._new_name, now_ns=clock.monotonic_ns())
            for shard in range(shards)
        ]
        self.syncer = self.syncers[0]
        self.flight: InFlight | None = None

    def _new_name(self) -> str:
        return f"{self.name}-{next(self._names)}"

    def limit(self, limit: Limit, policy: Policy, name: str = "limit") -> Table:
        return self.kernel.declare(name, limit, policy)

    def asks(self, table: Table, key: str, cost: int) -> None:
        """Makes a request wait for the hub's word."""
        cells: list[Cell] = []
        table.asks = True
        gate_of(table).queue_up(key, table.costs_of(cost), cells)
        self.asked.append((key, cost, cells))

    def stops_asking(self, table: Table) -> Iterator[tuple[str, int]]:
        """Let each request go that may go by now, and have the others wait no longer; tells of those that went."""
        gate, asked, self.asked = gate_of(table), self.asked, []
        for key, cost, cells in asked:
            costs = table.costs_of(cost)
            if gate.try_turn(key, costs, again=True).decision is not None:
                yield key, cost
            gate.step_out(cells, costs)

    def cancels_asks(self, table: Table) -> None:
        """No request waits any longer, whatever the hub has said."""
        asked, self.asked = self.asked, []
        for _, cost, cells in asked:
            gate_of(table).step_out(cells, table.costs_of(cost))

    def sends(self) -> Batch | None:
        """Put a batch on its way, unless one is, or there is nothing to say."""
        if self.flight is not None:
            return None
        now_ns = self.clock.monotonic_ns()
        batch = self.syncer.take(now_ns)
        if batch is not None:
            self.flight = InFlight(batch, now_ns)
        return batch

    def reaches(self, hub: MemoryHub) -> None:
        """Delivers the batch on its way to the hub, which answers."""
        if self.flight is not None and self.flight.answer is None:
            self.flight.answer = hub.merge(self.flight.batch)

    def hears(self) -> None:
        """The answer arrives, if there is one."""
        flight = self.flight
        if flight is not None and flight.answer is not None:
            self.flight = None
            self.syncer.merged(flight.batch, flight.answer, sent_ns=flight.sent_ns, now_ns=self.clock.monotonic_ns())

    def gives_up(self) -> Batch | None:
        """Gives the batch on its way up: it will not be answered any more, though it may still arrive."""
        if self.flight is None:
            return None
        flight, self.flight = self.flight, None
        self.syncer.failed("timeout", now_ns=self.clock.monotonic_ns())
        return flight.batch

    def exchanges_with(self, hub: MemoryHub, rounds: int = 1) -> None:
        """Exchanges so many times, without a moment passing."""
        for _ in range(rounds):
            self.sends()
            self.reaches(hub)
            self.hears()

    def says_everything_to(self, hub: MemoryHub) -> None:
        """Exchange, as time passes, for long enough to notice whatever happened to the hub, until all is said."""
        for done in range(50):
            self.exchanges_with(hub)
            self.clock.advance_ns(max(INTERVAL_NS, SILENCE_NS))
            if done > 3 and not any(table.tallies[0].changed for table in self.kernel.tables.values()):
                return
        raise AssertionError("this node never falls silent")


class Truth:
    """The admissions of all nodes of one key, as an all-knowing observer counts them."""

    def __init__(self, limit: Limit, clock: ManualClock) -> None:
        self.limit = limit
        self._clock = clock
        self._by_epoch: defaultdict[int, int] = defaultdict(int)
        self._by_slice: defaultdict[int, int] = defaultdict(int)
        self._log: list[tuple[int, int]] = []
        self._fill = 0.0
        self._filled_ns = 0
        self.charged = 0
        self.refunded = 0

    def admitted(self, cost: int, epoch: int, slice_number: int) -> None:
        """A request was admitted, in that window and slice by its node's reckoning."""
        self._by_epoch[epoch] += cost
        self._by_slice[slice_number] += cost
        self._log.append((self._clock.monotonic_ns(), cost))
        self._drain()
        self._fill += cost
        self.charged += cost

    def gave_back(self, cost: int, epoch: int, slice_number: int) -> None:
        """A request that was admitted just now turned out to be cheaper than it was charged."""
        self._by_epoch[epoch] -= cost
        self._by_slice[slice_number] -= cost
        self._log.append((self._clock.monotonic_ns(), -cost))
        self._drain()
        self._fill = max(0.0, self._fill - cost)
        self.refunded += cost

    def counts_at(self, epoch: int) -> bool:
        """Whether the hub's answer about this window can be compared with `excess`, which is of this very moment.

        Charges with dates are judged by the worst of several windows, and other windows while they last. Allowances of
        a paced limit are parts of its rate.
        """
        if self.limit.algorithm in PACED or self.limit.counts_as in ("sliding-log", "sliding-slices"):
            return False
        return self.limit.bucket or epoch == self._clock.wall_ns() // self.limit.window_ns

    def excess(self) -> float:
        """By how much the limit is exceeded at this moment; negative when it is not."""
        now_ns = self._clock.wall_ns()
        epoch, passed_ns = divmod(now_ns, self.limit.window_ns)
        if self.limit.bucket:
            self._drain()
            return self._fill - at_once(self.limit)
        if self.limit.counts_as == "sliding-log":
            since_ns = self._clock.monotonic_ns() - self.limit.window_ns
            self._log = [(at_ns, cost) for at_ns, cost in self._log if at_ns > since_ns]
            return sum(cost for _, cost in self._log) - self.limit.capacity
        if self.limit.counts_as == "sliding-slices":
            return self._worst_slices(now_ns) - self.limit.capacity
        if self.limit.counts_as == "fixed-window":
            return max(self._by_epoch[epoch], self._by_epoch[epoch + 1]) - self.limit.capacity
        left = 1 - passed_ns / self.limit.window_ns
        return self._by_epoch[epoch] + self._by_epoch[epoch - 1] * left - self.limit.capacity

    def _worst_slices(self, now_ns: int) -> int:
        """The most that slices hold which make up a window, by now; nothing is charged any more to those long over."""
        slices = self.limit.slices or 1
        present = now_ns * slices // self.limit.window_ns
        self._by_slice = defaultdict(
            int, {number: cost for number, cost in self._by_slice.items() if number > present - 4 * slices}
        )
        return max(
            (
                sum(cost for number, cost in self._by_slice.items() if last - slices < number <= last)
                for last in [*self._by_slice, present]
            ),
            default=0,
        )

    def _drain(self) -> None:
        now_ns = self._clock.monotonic_ns()
        drained = self.limit.quota * (now_ns - self._filled_ns) / self.limit.window_ns
        self._fill = max(0.0, self._fill - drained)
        self._filled_ns = now_ns
