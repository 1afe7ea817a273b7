"""A small world: a few nodes of one limit, one key, a hub, and everything that can happen to them, judged at once."""

# Theory of operation.
#
# The nodes run the production kernel, syncer and merge rule; the observer keeps books of its own (`observer.py`). What
# happens next is the caller's choice: each method between `hits` and `evicts` is one event, and `events.py` lists them.
# After each, `look` compares the world with the books and with what the ledger promises, and notes what is wrong in
# `problems`. Fine events are single steps; coarse ones are whole exchanges, after each of which an interval passes.
#
# Two things are no promise, and no event leads there. A limit is not kept across a loss of the hub's data while the hub
# alone remembers a departed node's use (`remembered_until_ns`); nor if the first node that reaches the empty hub is one
# that never knew its data, while others did (`witness_needed`).

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import inf
from typing import Final

from reconverge.clock import MICROSECOND_NS, SECOND_NS, ManualClock
from reconverge.hub.merge_rule import open_merge_rule
from reconverge.hub.report import Batch, Totals
from reconverge.kernel import Table, Verdict
from reconverge.kernel.cell import lease_until_ns
from reconverge.kernel.table.lookup import UNTOUCHED_NS
from reconverge.limit import FIRST_HIT, Limit
from reconverge.limit.limit import CONCURRENCY
from reconverge.policies import Policy
from reconverge.simulation.explore.node import INTERVAL_NS, LEASE_NS, START_S, Serial, SmallNode
from reconverge.simulation.explore.observer import (
    BucketTruth,
    FirstHitTruth,
    Held,
    SlotTruth,
    TrueUse,
    WatchedHub,
    sum_of_shares,
    truth_of,
    usable,
)
from reconverge.simulation.truth import declared_bound

KEY: Final = "ada"
SECOND: Final = "bea"
"""A second key, of worlds with two."""
OTHERS: Final = ("bob", "cyd")
"""Keys that come only to drive the key out of a node's memory."""
DEAR: Final = 3
"""The cost of the dearest request."""
GENERATION: Final = "^"
"""The first character of each name of the hub's data, and of nothing else."""
ROUNDING: Final = 1e-6
LATE_MAX: Final = 2
"""The number of batches that were given up and are kept, as they may still arrive."""


class SmallWorld:
    """A few nodes of one limit, the observer of everything, and the events that can happen to them."""

    def __init__(
        self, limit: Limit, policy: Policy, *, nodes: int = 2, start_ns: int = 0, keys: tuple[str, ...] = (KEY,)
    ) -> None:
        self.clock, self.hub_clock = ManualClock(START_S), ManualClock(START_S)
        self.passes(start_ns)
        self.limit = limit
        self.policy = policy
        self.numbers = Serial()
        # Windows go by the hub's clock; when a lease ends, by its node's.
        clock = self.clock if limit.algorithm == CONCURRENCY else self.hub_clock
        self.truths: dict[str, TrueUse] = {key: truth_of(limit, clock) for key in keys}
        self.truth = self.truths[KEY]
        generations = Serial()
        rule = open_merge_rule(clock=self.hub_clock, new_name=lambda: f"{GENERATION}{generations.next()}")
        self.hub = WatchedHub(rule, self.truths)
        self.idle_ns = 0
        """How long after its last charge a cell still counts some use."""
        self.started = 0
        """How many nodes were ever started."""
        self.bound = 0.0
        """The cost by which the limit may be exceeded, as declared for the nodes started so far."""
        self.late: list[Batch] = []
        """Batches that were given up and may still arrive, the latest last."""
        self.gone = 0
        self.remembered_until_ns = 0
        """Until when the hub alone may know the use of a node that has gone."""
        self.witness_needed = False
        """Whether the hub has lost its data and no node that knew them has reached it since."""
        self.elsewhere = 0
        """The cost that was admitted of other keys, and of this one while a node had no room for it."""
        self.uncounted = False
        """Whether admissions may have been lost, with a process that was killed or with the hub's data."""
        self.overcounted = False
        """Whether admissions may have been reported under two names."""
        self.problems: list[str] = []
        self.nodes = [self._start() for _ in range(nodes)]

    def _start(self) -> SmallNode:
        node = SmallNode(self.clock, keys_max=len(OTHERS), numbers=self.numbers)
        table = node.limit(self.limit, self.policy)
        self.started += 1
        self.bound = declared_bound(self.limit, self.policy, self.started, DEAR, waits=False) + ROUNDING
        self.idle_ns = table.meter.idle_ns
        return node

    def table(self, index: int) -> Table:
        """Returns a node's table of the limit."""
        return self.nodes[index].kernel.tables["limit"]

    # ------------------------------------------------------------ judging

    def look(self) -> None:
        """Compares the world with the books, and notes each problem."""
        if (excess := max(truth.excess() for truth in self.truths.values())) > self.bound:
            self.problems.append(f"{excess:.3f} beyond the limit")
        if self.policy.max_overshoot < inf and self.hub.too_free > self.bound:
            self.problems.append(f"{self.hub.too_free:.3f} too much is called free")
        for key in self.truths:
            self._look_at_allowances(key)
        self._look_at_sums()
        departures = self.started + sum(node.syncer._lapses for node in self.nodes)
        departures += sum(self.table(index).left_early for index in range(len(self.nodes)))
        if departures != self.gone:
            self.gone = departures
            self.remembered_until_ns = self.clock.monotonic_ns() + 2 * self.idle_ns

    def _look_at_allowances(self, key: str) -> None:
        """Notes a problem if the allowances, or the bases, of all nodes exceed the capacity in a window."""
        now_ns = self.clock.monotonic_ns()
        cells = [self.table(index).cells.get(key) for index in range(len(self.nodes))]
        live = [(cell, cell.table.capacity) for cell in cells if cell is not None and now_ns < lease_until_ns(cell)]
        for window in {cell.epoch for cell, _ in live}:
            held, whole = sum_of_shares([(usable(cell, window), capacity) for cell, capacity in live])
            if held > whole:
                self.problems.append(f"{held / whole:.3f} of the capacity lies in allowances")
        bases, whole = sum_of_shares([(cell.base, capacity) for cell, capacity in live])
        if bases > whole:
            self.problems.append("bases sum to more than the capacity")
        overdrafts, whole = sum_of_shares([(cell.overdraft, capacity) for cell, capacity in live])
        if overdrafts and overdrafts > whole * Fraction(str(self.policy.max_overshoot)):
            self.problems.append(f"{overdrafts / whole:.3f} of the capacity lies in overdrafts")

    def _look_at_sums(self) -> None:
        """Notes a problem if the hub counts a charge or a refund twice."""
        if self.overcounted:
            return
        sums = self.hub.sums().get("limit", Totals(0, 0))
        if sums.charged > self.charged:
            self.problems.append(f"the hub counts {sums.charged}, more than was ever admitted")
        if sums.refunded > sum(truth.refunded for truth in self.truths.values()) + self.elsewhere:
            self.problems.append(f"the hub counts {sums.refunded} given back, more than ever was")

    @property
    def charged(self) -> int:
        """Returns the cost of all requests that were ever admitted."""
        return sum(truth.charged for truth in self.truths.values()) + self.elsewhere

    # ------------------------------------------------------------ requests

    def hits(self, index: int, times: int = 1, cost: int = 1, key: str = KEY) -> int:
        """Decides requests from a node's memory. Returns the cost that is admitted."""
        node, admitted = self.nodes[index], 0
        table = self.table(index)
        if cost > table.limit.cost_max:
            return 0
        self._exists(key)
        for _ in range(times):
            verdict = table.decide(key, cost, self.clock.monotonic_ns())
            if not verdict.allowed:
                break
            self._admit(node, cost, verdict, key)
            admitted += cost
        return admitted

    def asks(self, index: int, times: int, cost: int = 1, key: str = KEY) -> None:
        """Makes requests wait for the hub's answer."""
        if cost <= self.table(index).limit.cost_max:
            self._exists(key)
            for _ in range(times):
                self.nodes[index].asks(self.table(index), key, cost)

    def stops_asking(self, index: int) -> int:
        """Ends the waiting of a node's requests. Returns the cost of those that are admitted."""
        node, admitted = self.nodes[index], 0
        for key, cost in node.stops_asking(self.table(index)):
            self._admit(node, cost, self.table(index).observe(key, self.clock.monotonic_ns()), key)
            admitted += cost
        return admitted

    def asks_at_once(self, index: int, times: int) -> int:
        """Makes requests ask the hub, and exchanges without delay. Returns the cost that is admitted."""
        self.asks(index, times)
        self.exchanges(index)
        if self.limit.align == FIRST_HIT:
            self.passes(INTERVAL_NS // 10)
            self.exchanges(index)  # the first answer may have opened a window, and the second one grants of it
        return self.stops_asking(index)

    def cancels_asks(self, index: int) -> None:
        """The clients of a node's waiting requests go away."""
        self.nodes[index].cancels_asks(self.table(index))

    def settles(self, index: int) -> None:
        """A request of cost 2 is admitted and turns out to cost nothing; or the oldest work of a node ends."""
        node, table = self.nodes[index], self.table(index)
        if isinstance(self.truth, SlotTruth):
            self.truth.ends(node, table)
            return
        if table.limit.cost_max < 2:
            return
        self._exists(KEY)
        verdict = table.decide(KEY, 2, self.clock.monotonic_ns())
        if verdict.allowed:
            self._admit(node, 2, verdict, KEY)
            table.correct(KEY, verdict.epoch, -2)
            if isinstance(self.truth, FirstHitTruth):
                self.truth.gave_back_by(node.number, 2, verdict.epoch)
            else:
                self.truth.gave_back(2, verdict.epoch, verdict.slice_number)

    def _exists(self, key: str) -> None:
        truth = self.truths[key]
        if isinstance(truth, BucketTruth):
            truth.asked()

    def _admit(self, node: SmallNode, cost: int, verdict: Verdict, key: str) -> None:
        truth = self.truths[key]
        if node.kernel.tables["limit"].cells.get(key) is None:
            # There was no room for the key: it went by the count that all such keys share.
            self.elsewhere += cost
            return
        if isinstance(truth, FirstHitTruth):
            truth.admitted_by(node.number, cost, verdict.epoch)
        elif isinstance(truth, SlotTruth):
            truth.begins(node, key, cost)
        else:
            truth.admitted(cost, verdict.epoch, verdict.slice_number)

    # ------------------------------------------------------------ messages

    def may_speak(self, index: int) -> bool:
        """Whether this node may send a batch without leading to a state that no promise covers."""
        return not self.witness_needed or bool(self.nodes[index].syncer._generation)

    def sends(self, index: int) -> None:
        """A node puts a batch on its way, if it has something to report."""
        if self.may_speak(index):
            self.nodes[index].sends()

    def arrives(self, index: int) -> None:
        """The batch of a node arrives at the hub, which answers."""
        node = self.nodes[index]
        if self.may_speak(index) and node.flight is not None:
            node.reaches(self.hub)
            self.witness_needed = False

    def hears(self, index: int) -> None:
        """The hub's answer arrives at a node."""
        self.nodes[index].hears()

    def exchanges(self, index: int) -> None:
        """A node's batch and its answer arrive without delay; so do those that are on their way."""
        self.sends(index)
        self.arrives(index)
        self.hears(index)

    def gives_up(self, index: int) -> None:
        """A node gives up its batch: that, or its answer, is lost, unless it arrives late."""
        batch = self.nodes[index].gives_up()
        if batch is not None:
            self.late = [*self.late[1 - LATE_MAX :], batch]

    def loses_request(self, index: int) -> None:
        """A node's batch does not arrive, for now, and the node gives it up."""
        self.sends(index)
        self.gives_up(index)

    def loses_answer(self, index: int) -> None:
        """A node's batch arrives, and its answer does not."""
        self.sends(index)
        self.arrives(index)
        self.gives_up(index)

    def late_one_arrives(self, place: int) -> None:
        """A batch that was given up arrives, behind others or once more; `place` counts from the oldest."""
        if not self.witness_needed and place < len(self.late):
            self.hub.merge(self.late[place])

    # ------------------------------------------------------------ time

    def passes(self, nanoseconds: int) -> None:
        """Time passes, and nothing else happens."""
        self.clock.advance_ns(nanoseconds)
        self.hub_clock.advance_ns(nanoseconds)

    def drifts(self, share: float) -> None:
        """The time of a lease passes at the hub, whose clock runs faster than the nodes' by this `share`."""
        lease_ns = LEASE_NS + 2 * MICROSECOND_NS  # the hub counts whole microseconds
        self.hub_clock.advance_ns(lease_ns)
        self.clock.advance_ns(round(lease_ns / (1 + share)))

    def comes_to_the_edge(self) -> None:
        """The present window ends in a nanosecond."""
        self.passes(self.limit.window_ns - self.hub_clock.wall_ns() % self.limit.window_ns - 1)

    def rests(self, windows: float, first: int, step: int = 1) -> None:
        """No request comes for a part of a window; the nodes exchange, always in the same order."""
        step_ns = max(1, int(windows * self.limit.window_ns) // 2)
        for _ in range(2):
            self.passes(step_ns)
            for index in self.in_order(first, step):
                self.exchanges(index)

    def in_order(self, first: int, step: int = 1) -> list[int]:
        """Returns all nodes from `first` on, but those that know the hub's data before those that do not."""
        nodes = len(self.nodes)
        order = [(first + step * place) % nodes for place in range(nodes)]
        return sorted(order, key=lambda index: not self.nodes[index].syncer._generation)

    # ------------------------------------------------------------ nodes, hub and settings

    def leaves(self, index: int) -> None:
        """A node stops in good order, and another one starts in its place."""
        if not self.may_speak(index):
            return
        self.gives_up(index)
        node = self.nodes[index]
        node.syncer.leave(self.clock.monotonic_ns())
        while not node.syncer.left:
            node.exchanges_with(self.hub)
        self.witness_needed = False
        self._replace(index)

    def dies(self, index: int) -> None:
        """A node is killed, and another one starts in its place."""
        self.gives_up(index)
        self.uncounted = True
        self._replace(index)

    def _replace(self, index: int) -> None:
        for truth in self.truths.values():
            if isinstance(truth, SlotTruth):
                truth.vanishes(self.nodes[index])
        self.nodes[index] = self._start()

    def is_restored(self, index: int) -> None:
        """A process notices that it may be a copy, restored from an image, and goes on under another name.

        What the hub may have counted without an answer it reports anew, so that the sums over its life may be too high.
        """
        self.uncounted = self.overcounted = True
        self.nodes[index].syncer.give_up_allowances(self.clock.monotonic_ns())

    def hub_loses_data(self, first: int, step: int = 1) -> None:
        """The hub loses its data, except while it alone remembers a departed node, which no promise covers.

        Under a policy with overdrafts, the nodes that know its data then exchange before anything else happens, first
        the node `first`.
        """
        if self.clock.monotonic_ns() < self.remembered_until_ns:
            return
        self.hub.lose_data()
        self.uncounted = True
        witnesses = [index for index in self.in_order(first, step) if self.nodes[index].syncer._generation]
        self.witness_needed = bool(witnesses)
        if self.policy.max_overshoot > 0:
            for index in witnesses:
                self.gives_up(index)
            self.passes(SECOND_NS)
            for index in witnesses:
                for _ in range(3):
                    self.exchanges(index)

    def lowers(self, index: int) -> None:
        """A node learns of half the quota, and of half the burst."""
        burst = self.limit.burst
        half = None if burst is None else max(1, burst // 2)
        self.table(index).change(replace(self.limit, quota=max(1, self.limit.quota // 2), burst=half))

    def raises(self, index: int) -> None:
        """A node learns of the whole quota again."""
        self.table(index).change(self.limit)

    def changes_policy(self, index: int, policy: Policy) -> None:
        """A node learns of another policy."""
        self.table(index).set_policy(policy)

    def evicts(self, index: int) -> None:
        """Only other keys come to a node, for so long that this one leaves its memory."""
        node, table = self.nodes[index], self.table(index)
        for _ in range(3):
            for key in OTHERS:
                verdict = table.decide(key, 1, self.clock.monotonic_ns())
                if not verdict.allowed:
                    continue
                self.elsewhere += 1
                if isinstance(self.truth, SlotTruth):
                    table.release(Held(node, key, 1, table.cell_in_use(key), 1))
            self.exchanges(index)
            self.passes(UNTOUCHED_NS // 2)
