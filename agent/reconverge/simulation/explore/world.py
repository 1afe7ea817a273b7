"""A small world: a few nodes of one limit, one or two keys, a hub, and the events that can happen, judged at once."""

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
    SlotTruth,
    TrueUse,
    WatchedHub,
    sum_of_shares,
    truth_of,
    usable,
)
from reconverge.simulation.in_progress.world import Work
from reconverge.simulation.truth import declared_bound

KEY: Final = "ada"
SECOND: Final = "bea"
"""The second key of worlds that have two."""
OTHERS: Final = ("bob", "cyd")
"""Keys that are asked about only to drive the first key out of a node's memory."""
DEAR: Final = 3
"""The highest cost of a request."""
GENERATION: Final = "^"
"""The first character of every name of a generation of the hub's data; no other text begins with it."""
ROUNDING: Final = 1e-6
LATE_MAX: Final = 2
"""How many batches, for whose answer no node waits any more, the world keeps, as they may still arrive."""


class SmallWorld:
    """A few nodes that share one limit, their hub, an observer of all admissions, and the events that can happen."""

    def __init__(
        self,
        limit: Limit,
        policy: Policy,
        *,
        nodes: int = 2,
        start_ns: int = 0,
        keys: tuple[str, ...] = (KEY,),
        names_reversed: bool = False,
    ) -> None:
        self.clock, self.hub_clock = ManualClock(START_S), ManualClock(START_S)
        self.limit = limit
        self.policy = policy
        self.numbers = Serial(downwards=names_reversed)
        # Windows go by the hub's clock; when a lease ends, by its node's.
        clock = self.clock if limit.algorithm == CONCURRENCY else self.hub_clock
        self.truths: dict[str, TrueUse] = {key: truth_of(limit, clock) for key in keys}
        self.truth = self.truths[KEY]
        self.passes(start_ns)
        generations = Serial()
        rule = open_merge_rule(clock=self.hub_clock, new_name=lambda: f"{GENERATION}{generations.next()}")
        self.hub = WatchedHub(rule, self.truths)
        self.idle_ns = 0
        """The time, in nanoseconds, for which a cell still counts some use after its last charge."""
        self.started = 0
        """The number of nodes that were ever started."""
        self.bound = 0.0
        """The cost by which the limit may be exceeded, as the policy declares for the nodes started so far."""
        self.late: list[Batch] = []
        """Batches that nodes have given up and that may still arrive, the latest last."""
        self.gone = 0
        self.remembered_until_ns = 0
        """The time until which the hub alone may know the use of a node that has gone."""
        self.witness_needed = False
        """Whether the hub has lost its data and no node that knew those data has reached it since."""
        self.elsewhere = 0
        """The admitted cost of other keys, and of this key while a node had no room for it."""
        self.uncounted = False
        """Whether admissions may have been lost, with a killed process or with the hub's data."""
        self.overcounted = False
        """Whether admissions may have been reported under two names of the same node."""
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
        """Compares nodes and hub with the observer's accounts, and appends each broken promise to `problems`."""
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
        """Appends a problem if all nodes' allowances in a window, or those for the next, exceed the capacity."""
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
        """Appends a problem if the hub has counted a charge or a refund twice."""
        if self.overcounted:
            return
        sums = self.hub.sums().get("limit", Totals(0, 0))
        if sums.charged > self.charged:
            self.problems.append(f"the hub counts {sums.charged}, more than was ever admitted")
        if sums.refunded > sum(truth.refunded for truth in self.truths.values()) + self.elsewhere:
            self.problems.append(f"the hub counts {sums.refunded} given back, more than ever was")

    @property
    def charged(self) -> int:
        """Returns the cost of all requests that any node has ever admitted."""
        return sum(truth.charged for truth in self.truths.values()) + self.elsewhere

    # ------------------------------------------------------------ requests

    def hits(self, index: int, times: int = 1, cost: int = 1, key: str = KEY) -> int:
        """Lets a node decide `times` requests from memory. Returns the cost that it admits."""
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
        """Makes `times` requests at a node wait for the hub's answer."""
        if cost <= self.table(index).limit.cost_max:
            self._exists(key)
            for _ in range(times):
                self.nodes[index].asks(self.table(index), key, cost)

    def stops_asking(self, index: int) -> int:
        """Ends the waiting of a node's requests. Returns the summed cost of those that are admitted thereby."""
        node, admitted = self.nodes[index], 0
        for key, cost in node.stops_asking(self.table(index)):
            self._admit(node, cost, self.table(index).observe(key, self.clock.monotonic_ns()), key)
            admitted += cost
        return admitted

    def asks_at_once(self, index: int, times: int) -> int:
        """Makes `times` requests at a node ask the hub, and exchanges without delay. Returns the admitted cost."""
        self.asks(index, times)
        self.exchanges(index)
        if self.limit.align == FIRST_HIT:
            self.passes(INTERVAL_NS // 10)
            self.exchanges(index)  # the first answer may have opened a window, and the second one grants of it
        return self.stops_asking(index)

    def cancels_asks(self, index: int) -> None:
        """Cancels all waiting requests of a node, so that none of them is admitted."""
        self.nodes[index].cancels_asks(self.table(index))

    def settles(self, index: int) -> None:
        """Lets a node admit a request of cost 2 and refund it; if the limit is on slots, ends its oldest work."""
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
        """Whether a node may send a batch without leading to a state for which nothing is promised."""
        return not self.witness_needed or bool(self.nodes[index].syncer._generation)

    def sends(self, index: int) -> None:
        """Lets a node put a batch on its way, if it has something to report."""
        if self.may_speak(index):
            self.nodes[index].sends()

    def arrives(self, index: int) -> None:
        """Lets a node's batch arrive at the hub, which answers."""
        node = self.nodes[index]
        if self.may_speak(index) and node.flight is not None:
            node.reaches(self.hub)
            self.witness_needed = False

    def hears(self, index: int) -> None:
        """Lets the hub's answer arrive at a node."""
        self.nodes[index].hears()

    def exchanges(self, index: int) -> None:
        """Lets a node's batch, the one on its way or a new one, reach the hub, and the answer reach the node."""
        self.sends(index)
        self.arrives(index)
        self.hears(index)

    def gives_up(self, index: int) -> None:
        """Makes a node stop waiting for the answer to its batch; the batch may still arrive late, or again."""
        batch = self.nodes[index].gives_up()
        if batch is not None:
            self.late = [*self.late[1 - LATE_MAX :], batch]

    def loses_request(self, index: int) -> None:
        """Makes a node send a batch that does not arrive for now, and stop waiting for the answer."""
        self.sends(index)
        self.gives_up(index)

    def loses_answer(self, index: int) -> None:
        """Makes a node send a batch that arrives at the hub, while the answer is lost."""
        self.sends(index)
        self.arrives(index)
        self.gives_up(index)

    def late_one_arrives(self, place: int) -> None:
        """Lets a batch that its node has given up arrive, perhaps once more; `place` 0 is the oldest of them."""
        if not self.witness_needed and place < len(self.late):
            self.hub.merge(self.late[place])

    # ------------------------------------------------------------ time

    def passes(self, nanoseconds: int) -> None:
        """Lets time pass at the nodes and at the hub."""
        self.clock.advance_ns(nanoseconds)
        self.hub_clock.advance_ns(nanoseconds)
        self._marks_lapsed()

    def _marks_lapsed(self) -> None:
        for truth in self.truths.values():
            if isinstance(truth, SlotTruth):
                truth.marks_lapsed()

    def drifts(self, share: float) -> None:
        """Lets a lease pass by the hub's clock, which is faster than the nodes' clocks by the fraction `share`."""
        lease_ns = LEASE_NS + 2 * MICROSECOND_NS  # the hub counts whole microseconds
        self.hub_clock.advance_ns(lease_ns)
        self.clock.advance_ns(round(lease_ns / (1 + share)))
        self._marks_lapsed()

    def comes_to_the_edge(self) -> None:
        """Lets time pass until a nanosecond before the present window ends."""
        self.passes(self.limit.window_ns - self.hub_clock.wall_ns() % self.limit.window_ns - 1)

    def rests(self, windows: float, first: int, step: int = 1) -> None:
        """Lets `windows` windows pass without requests; halfway and at the end all nodes exchange, see `in_order`."""
        step_ns = max(1, int(windows * self.limit.window_ns) // 2)
        for _ in range(2):
            self.passes(step_ns)
            for index in self.in_order(first, step):
                self.exchanges(index)

    def in_order(self, first: int, step: int = 1) -> list[int]:
        """Returns the indexes of all nodes, from `first` on by `step`; those that the hub has answered come first."""
        nodes = len(self.nodes)
        order = [(first + step * place) % nodes for place in range(nodes)]
        return sorted(order, key=lambda index: not self.nodes[index].syncer._generation)

    # ------------------------------------------------------------ nodes, hub and settings

    def leaves(self, index: int) -> None:
        """Stops a node in good order, with its last report, and starts another one in its place."""
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
        """Kills a node, and starts another one in its place."""
        self.gives_up(index)
        self.uncounted = True
        self._replace(index)

    def _replace(self, index: int) -> None:
        for truth in self.truths.values():
            if isinstance(truth, SlotTruth):
                truth.vanishes(self.nodes[index])
        self.nodes[index] = self._start()

    def is_restored(self, index: int) -> None:
        """Makes a process notice that it may be a copy, restored from an image, and go on under another name.

        It reports anew the use that the hub may have counted already, so the hub's sums over its life may be too high.
        """
        self.uncounted = self.overcounted = True
        self.nodes[index].syncer.give_up_allowances(self.clock.monotonic_ns())

    def hub_loses_data(self, first: int, step: int = 1) -> None:
        """Makes the hub lose its data; does nothing while the hub alone remembers a departed node.

        Under a policy with overdrafts, all nodes that the hub had answered then exchange before anything else happens.
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
        """Halves the quota and the burst that a node applies."""
        burst = self.limit.burst
        half = None if burst is None else max(1, burst // 2)
        self.table(index).change(replace(self.limit, quota=max(1, self.limit.quota // 2), burst=half))

    def raises(self, index: int) -> None:
        """Gives a node the whole quota again."""
        self.table(index).change(self.limit)

    def changes_policy(self, index: int, policy: Policy) -> None:
        """Gives a node another policy."""
        self.table(index).set_policy(policy)

    def evicts(self, index: int) -> None:
        """Gives a node requests for other keys only, until it has evicted the world's key from its memory."""
        node, table = self.nodes[index], self.table(index)
        for _ in range(3):
            for key in OTHERS:
                verdict = table.decide(key, 1, self.clock.monotonic_ns())
                if not verdict.allowed:
                    continue
                self.elsewhere += 1
                if isinstance(self.truth, SlotTruth):
                    table.release(Work(node, key, 1, table.cell_in_use(key), 1))
            self.exchanges(index)
            self.passes(UNTOUCHED_NS // 2)
