"""Runs a fleet under virtual time, in a world of clocks, networks and faults that is drawn from a seed.

The kernel, the policies, the syncer and the merge rule are the real ones. The world makes no decisions: it passes
times, messages and requests to the code that runs in production, in an order that depends on the seed alone.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Final

from reconverge.clock import MICROSECOND_NS, SECOND_NS
from reconverge.errors import CostExceedsQuota, HubUnavailable
from reconverge.exchange.syncer import Syncer
from reconverge.hub.merge_rule import MergeRule, open_merge_rule
from reconverge.hub.report import Answer, Batch
from reconverge.limit.limit import FIRST_HIT, Limit
from reconverge.policies import Policy
from reconverge.settings import LEASE_INTERVALS_MIN
from reconverge.simulation.asked import LIMIT_NAME, Judged
from reconverge.simulation.asker import SimulatedAsk
from reconverge.simulation.changing import limit_at
from reconverge.simulation.fault import ENDS, Direction, Fault, FaultKind, kept_down, offset_ns
from reconverge.simulation.fleet import Fleet, FleetMember, NodeClock
from reconverge.simulation.judging.accounts import AccountedKernel, Accounts
from reconverge.simulation.judging.leases import Leases, UnderWay
from reconverge.simulation.pattern import SimulatedArrival
from reconverge.simulation.truth import CalledFree, DecidedRequest, RunHistory, number_of

LATENCY_SPREAD: Final = 0.2
"""The fraction by which a message may take longer or shorter than half of the round trip."""
REPEATED_WITHIN_NS: Final = 3 * SECOND_NS
KEY_BYTES_MAX: Final = 256

WAKE, AT_HUB, ANSWERED, GIVEN_UP, FAULT, ASK, CHANGE = range(7)
"""Kinds of events: a node may exchange, a batch arrives, an answer arrives, an exchange times out, a fault begins, a
request that asks checks for its answer, a node applies another quota."""


class World:
    """One simulated run of a fleet under one policy. `now_ns` is the time since the start, in nanoseconds."""

    def __init__(
        self,
        fleet: Fleet,
        policy: Policy,
        faults: Sequence[Fault],
        *,
        seed: int,
        make_rule: Callable[..., MergeRule] | None = None,
    ) -> None:
        self.now_ns = 0
        self.fleet = fleet
        self.policy = policy
        self.begin_ns = fleet.begin_ns
        self._hub_windows: defaultdict[str, set[int]] = defaultdict(set)
        self._random = Random(f"world {seed}")
        self._faults = tuple(faults)
        self._names = 0
        self._events: list[tuple[int, int, int, int, object]] = []
        self._order = 0
        self.hub = (make_rule or open_merge_rule)(clock=NodeClock(self, 0), new_name=self._new_name)
        self.messages: list[int] = []
        self.reports: list[int] = []
        """By window, the number of reports, each about one key, that all nodes have sent."""
        self._limits = tuple(fleet.quotas.values())
        self._decided: list[list[DecidedRequest]] = [[] for _ in self._limits]
        self.waited_for_ns: dict[str, int] = {}
        self._called_free: list[CalledFree] = []
        self.askers: dict[SimulatedAsk, None] = {}
        """The requests that wait for the hub's answer, in the order in which they began."""
        self.chance = Random(f"asks {seed}")
        """The random generator that draws which requests ask and which are cancelled. It is a separate one, so that
        everything else is drawn as without requests that ask."""
        self._accounts = Accounts()
        self._leases = Leases()
        self.nodes = [FleetMember(index, NodeClock(self, offset_ns(faults, index))) for index in range(fleet.nodes)]
        for node in self.nodes:
            self._start(node)
        for fault in faults:
            if fault.kind in (FaultKind.LOSE_DATA, FaultKind.JUMP, *ENDS):
                self._push(fault.start_ns, FAULT, 0, fault)
        for change in fleet.changes:
            for node in self.nodes:
                self._push(change.reaches_ns(node.index), CHANGE, node.index, change.limit)

    def run(self, arrivals: Sequence[SimulatedArrival], *, until_ns: int) -> RunHistory:
        """Lets all requests in `arrivals` arrive, and time pass until `until_ns`. Returns the history of the run."""
        asks = self.fleet.asks
        for number, arrival in enumerate(arrivals):
            self.pass_until(arrival.moment_ns)
            node = self.nodes[arrival.node]
            if not node.serves:
                continue  # a crashed node is not asked, nor one that stops
            if asks is not None and asks.includes(node.index, self.chance):
                SimulatedAsk(self, node, number, arrival).go_on()
            else:
                with suppress(CostExceedsQuota):
                    self.note(number, arrival, node.asked.decide(arrival.key, arrival.cost, arrival.moment_ns))
            if node.woken:
                self._look_at(node)
        self.pass_until(until_ns)
        while self.askers:  # each goes on at its `due_ns`, even without an answer
            self.pass_until(max(asker.due_ns for asker in self.askers))
        return RunHistory(self._decided, self.messages, self._hub_windows, self.waited_for_ns, self._called_free)

    def note(self, number: int, arrival: SimulatedArrival, judged: Judged, *, asked: bool = False) -> None:
        """Records the decision just made about request `number`; `asked` if the request asked the hub."""
        hub_ns, waited_ns = self.begin_ns + self.now_ns, self.now_ns - arrival.moment_ns
        nodes = min(shard.nodes for shard in self.nodes[arrival.node].kernel.shards)
        for decided, limit, (key, verdict) in zip(self._decided, self._limits, judged, strict=True):
            allowed, epoch, decided_ns, known, slice_number = verdict
            if not known and epoch >= 0 and limit.align == FIRST_HIT:
                epoch += (hub_ns - decided_ns) // MICROSECOND_NS  # by a clock that no answer has corrected yet
            place = hub_ns, number, key, epoch
            decided.append(
                DecidedRequest(
                    *place, arrival.cost, 0, arrival.node, allowed, known, slice_number, asked, waited_ns, nodes
                )
            )

    def call_at(self, moment_ns: int, asker: SimulatedAsk) -> None:
        """Plans an event at `moment_ns`, at which `asker` checks whether the hub has answered it."""
        self._push(moment_ns, ASK, asker.node.index, asker)

    def pass_until(self, moment_ns: int) -> None:
        """Runs all events up to `moment_ns`, in nanoseconds since the start."""
        events = self._events
        while events and events[0][0] <= moment_ns:
            self.now_ns, _, action, index, what = heapq.heappop(events)
            node = self.nodes[index]
            if action == WAKE:
                if self.now_ns == node.due_ns and node.batch is None and node.alive:
                    self._speak(node)
            elif action == AT_HUB:
                assert isinstance(what, Batch)
                self._arrive(node, what)
            elif action == ANSWERED:
                assert isinstance(what, tuple)
                self._hear(node, *what)
            elif action == GIVEN_UP:
                assert isinstance(what, tuple)
                self._give_up(node, *what)
            elif action == ASK:
                assert isinstance(what, SimulatedAsk)
                what.look()
                if node.woken:
                    self._look_at(node)
            elif action == CHANGE:
                assert isinstance(what, Limit)
                if node.alive:
                    node.asked.change(what)
                    self._look_at(node)
            else:
                assert isinstance(what, Fault | FleetMember)
                self._strike(what)
        self.now_ns = max(self.now_ns, moment_ns)

    def faults_end_ns(self) -> int:
        """Returns the time at which the last fault ends, in nanoseconds since the start."""
        return max((fault.end_ns for fault in self._faults), default=0)

    def given_up_ns(self) -> int:
        """Returns when the hub has given up all names that no process uses any more; 0 if there is no such name."""
        in_use = {node.syncer.node for node in self.nodes if node.alive}
        return self._leases.given_up_ns(
            in_use, (UnderWay(at_ns, what) for at_ns, *_, what in self._events if isinstance(what, Batch))
        )

    def miscounted(self) -> list[str]:
        """Returns a sentence for each charge that the hub has lost or counted twice.

        To be called when all nodes have had time to report.
        """
        alive = [(node.kernel, node.asked.tables) for node in self.nodes if node.alive]
        return self._accounts.miscounted(alive, self.hub.sums())

    def unseen(self, decided: Sequence[DecidedRequest]) -> list[str]:
        """Returns a sentence for each key for which the hub reports less use, or more, than the nodes charged.

        To be called when all nodes have had time to report. The node that is asked may be silent about the key, so this
        lets the longest silence pass, and a round trip and a timeout.
        """
        limit = self.fleet.limit
        current = number_of(limit, self.begin_ns + self.now_ns)
        # In this mode all requests come within one window of a first-hit or dated limit, so all of them count.
        first_hit = limit.align == FIRST_HIT
        least, most = Counter[str](), Counter[str]()
        for one in decided:
            cost = one.cost if one.allowed else 0
            least[one.key] += cost if first_hit or limit.dated or one.epoch == current else 0
            # A node whose clock is slow has charged to the window before. It moves such charges into this window when
            # an answer corrects its clock, unless its clock has reached this window by itself.
            here = first_hit or current in (one.epoch, number_of(limit, one.hub_ns))
            most[one.key] += cost if here else 0
        observer = next((node for node in self.nodes if node.alive), None)
        if observer is None:
            return []
        for key in most:
            observer.table.decide(key, 0, self.now_ns)
        self._look_at(observer)
        silent = any(observer.table.cells[key].comfortable for key in most)
        self.pass_until(self.now_ns + silent * self.fleet.longest_silence_ns + self.fleet.heard_within_ns)
        crashes = any(fault.kind in ENDS for fault in self._faults)
        lapses = crashes or self.lapsed()
        problems = []
        for key, charged in most.items():
            seen = observer.table.cells[key].used + observer.table.cells[key].others_current
            # Of a node whose lease has ended, all that it might have used counts as used.
            if seen < least[key] - self._accounts.unreported_of_keys[LIMIT_NAME] or (seen > charged and not lapses):
                problems.append(f"{key}: {charged} was charged, but the hub reports {seen} to a node")
        return problems

    def lapsed(self) -> bool:
        """Whether the lease of any node has ever ended before the node had the hub's next answer."""
        return any(node.syncer.stats(self.now_ns).lapses for node in self.nodes)

    def ask_everywhere(self) -> None:
        """Asks each live node about each key that it knows, with a request of cost 0."""
        for node in self.nodes:
            for key in [key for table in node.asked.tables for key in table.cells] if node.alive else ():
                node.table.decide(key, 0, self.now_ns)
            self._look_at(node)

    def disagreements(self) -> list[str]:
        """Returns a sentence for each key whose use nodes see differently; to be called after `ask_everywhere`."""
        seen: defaultdict[tuple[str, int], dict[int, int]] = defaultdict(dict)
        used: defaultdict[tuple[str, int], int] = defaultdict(int)
        for node in self.nodes:
            for cell in node.table.cells.values() if node.alive else ():
                node.table.edges.advance(cell, self.now_ns)
                if cell.heard:
                    seen[cell.key, cell.epoch][node.index] = cell.used + cell.others_current
                    used[cell.key, cell.epoch] += cell.used
        return [
            f"{key} in window {epoch}: the nodes think that {views} was used, and have used {used[key, epoch]}"
            for (key, epoch), views in seen.items()
            if len(set(views.values())) > 1 or min(views.values()) < used[key, epoch]
        ]

    def _start(self, node: FleetMember) -> None:
        """Starts a new process in the place of a node. The hub does not know it yet."""
        fleet = self.fleet
        node.kernel = AccountedKernel(
            node.clock,
            namespace="simulation",
            interval_ns=fleet.sync_interval_ns,
            interval_min_ns=fleet.shortest_interval_ns,
            keys_max=fleet.keys_max,
            key_bytes_max=KEY_BYTES_MAX,
            lease_ns=fleet.lease_ns,
            lease_min_ns=LEASE_INTERVALS_MIN * fleet.sync_interval_ns,
        )
        node.kernel.keep_accounts()
        node.kernel.region_ppm = fleet.region_ppm
        node.kernel.silence_max_ns = fleet.max_silence_ns
        node.asked = fleet.declare(node.kernel, self.policy, node.index)
        changed = limit_at(fleet.changes, node.index, self.now_ns)
        if changed is not None:
            node.asked.change(changed)
        random = Random(self._random.random())
        node.syncer = Syncer(node.kernel, shard=0, random=random, new_name=self._new_name, now_ns=self.now_ns)
        node.batch = None
        node.alive, node.stopping = True, False

        def wake() -> None:
            node.woken = True

        node.kernel.wake = wake
        self._plan(node, self.now_ns + int(random.random() * fleet.sync_interval_ns))  # not in step with others

    def _speak(self, node: FleetMember) -> None:
        batch = node.syncer.take(self.now_ns)
        if batch is None:
            self._look_at(node)
            return
        node.batch, node.sent_ns = batch, self.now_ns
        self._count_message(batch)
        down = self._active(FaultKind.DOWN) is not None
        failed_ns = min(self._latency_ns() * 2, self.fleet.timeout_ns) if down else self.fleet.timeout_ns
        self._push(self.now_ns + failed_ns, GIVEN_UP, node.index, (batch, "refused" if down else "timeout"))
        if down:
            return
        if not self._lost(node, Direction.REQUESTS):
            self._push(self.now_ns + self._latency_ns(), AT_HUB, node.index, batch)
        repeat = self._active(FaultKind.REPEAT)
        if repeat is not None and self._random.random() < repeat.amount:
            late_ns = int(self._random.random() * REPEATED_WITHIN_NS)
            self._push(self.now_ns + self._latency_ns() + late_ns, AT_HUB, node.index, batch)

    def _arrive(self, node: FleetMember, batch: Batch) -> None:
        """Merges a batch that has arrived at the hub, and sends the answer, unless a fault prevents either."""
        try:
            answer = self.hub.merge(batch._replace(shard=node.index % self.fleet.regions))
        except HubUnavailable:
            return
        self._accounts.note_answer(answer.generation)
        self._leases.note_answer(batch, answer, self.now_ns)
        for report, cell in zip(batch.cells, answer.cells, strict=False):
            if cell.epoch >= 0:
                self._hub_windows[report.key].add(cell.epoch)
            if batch.limits[report.limit].name == LIMIT_NAME:
                place = len(self._decided[0]), self.begin_ns + self.now_ns, report.key, cell.epoch
                self._called_free.append(CalledFree(*place, cell.free))
        if not self._lost(node, Direction.REPLIES):
            self._push(self.now_ns + self._latency_ns(), ANSWERED, node.index, (batch, answer))

    def _hear(self, node: FleetMember, batch: Batch, answer: Answer) -> None:
        if node.batch is not batch:
            return  # the node has given up this exchange, or was restarted
        node.batch = None
        node.syncer.merged(batch, answer, sent_ns=node.sent_ns, now_ns=self.now_ns)
        if node.stopping and node.syncer.left:
            self._end(node)
        self._look_at(node)

    def _give_up(self, node: FleetMember, batch: Batch, kind: str) -> None:
        if node.batch is batch:
            node.batch = None
            node.syncer.failed(kind, now_ns=self.now_ns)
            self._look_at(node)

    def _look_at(self, node: FleetMember) -> None:
        """Plans the node's next exchange, unless one is under way or the node is dead."""
        node.woken = False
        if node.batch is None and node.alive:
            self._plan(node, max(node.syncer.due_ns(self.now_ns), self.now_ns))

    def _plan(self, node: FleetMember, due_ns: int) -> None:
        node.due_ns = due_ns
        self._push(due_ns, WAKE, node.index, None)

    def _strike(self, what: Fault | FleetMember) -> None:
        """Lets a fault begin; or, given a node that a fault has ended, starts its process again."""
        if isinstance(what, FleetMember):
            self._come_back(what)
        elif what.kind is FaultKind.LOSE_DATA:
            self.hub.lose_data()
        elif what.kind is FaultKind.JUMP:
            for index in what.nodes:
                self.nodes[index].clock.ahead_ns += round(what.amount * SECOND_NS)
        else:
            for node in (self.nodes[index] for index in what.nodes):
                if what.kind is FaultKind.STOP:
                    self._stop(node)
                else:
                    self._end(node)
                self._push(what.end_ns, FAULT, 0, node)

    def _stop(self, node: FleetMember) -> None:
        """Begins to stop a node in good order: it gets no more requests, and sends its last report."""
        if node.serves:
            node.stopping = True
            for asker in [asker for asker in self.askers if asker.node is node]:
                asker.look()
            node.syncer.leave(self.now_ns)
            self._look_at(node)

    def _end(self, node: FleetMember) -> None:
        if node.alive:
            node.alive = False
            self._accounts.note_ended(node.kernel, node.asked.tables)
            node.batch = None

    def _come_back(self, node: FleetMember) -> None:
        """Starts a new process in the place of a node that has ended, or whose last report has not arrived."""
        if not kept_down(self._faults, node.index, self.now_ns):
            if node.stopping:
                self._end(node)
            if not node.alive:
                self._start(node)

    def _active(self, kind: FaultKind) -> Fault | None:
        for fault in self._faults:
            if fault.kind is kind and fault.active(self.now_ns):
                return fault
        return None

    def _lost(self, node: FleetMember, direction: Direction) -> bool:
        for fault in self._faults:
            if not fault.active(self.now_ns):
                continue
            if (
                fault.kind is FaultKind.CUT
                and node.index in fault.nodes
                and fault.direction in (Direction.BOTH, direction)
            ):
                return True
            if fault.kind is FaultKind.LOSS and self._random.random() < fault.amount:
                return True
        return False

    def _latency_ns(self) -> int:
        slow = self._active(FaultKind.SLOW)
        factor = slow.amount if slow is not None else 1.0
        spread = 1 - LATENCY_SPREAD + 2 * LATENCY_SPREAD * self._random.random()
        return max(1, int(self.fleet.round_trip_ns / 2 * factor * spread))

    def _count_message(self, batch: Batch) -> None:
        window = self.now_ns // self.fleet.limit.window_ns
        while len(self.messages) <= window:
            self.messages.append(0)
            self.reports.append(0)
        self.messages[window] += 1
        self.reports[window] += len(batch.cells)

    def _push(self, moment_ns: int, action: int, index: int, what: object) -> None:
        self._order += 1
        heapq.heappush(self._events, (moment_ns, self._order, action, index, what))

    def _new_name(self) -> str:
        self._names += 1
        return f"name-{self._names}"
