"""Asks the hub about requests that this node's memory cannot decide for certain; each waits some milliseconds."""

# Theory of operation.
#
# Memory decides at once if the decision is certain: an admission within the node's own part of a limit, or a refusal
# when by all nodes' reports nothing can be free. All else is doubt: the key is new to this node, or the node's part is
# used up while other nodes or the hub may have some. In doubt a request joins the next batch to the hub and waits for
# the answer (`kernel/composite/asking.py` explains what an answer means).
#
# The steps of a request that asks are a generator (`steps`) that yields how long to sleep; two runners, a coroutine and
# a function (`waiting/running.py`), only sleep. There is no queue: every answer of the hub wakes each waiting request,
# which checks by itself.
#
#     no request waits             because
#     for a hub that is silent     one request was left unanswered; then no other waits until the shard answers again
#     for a hub that is too far    the last round trip and the best recent one are longer than the request would wait
#                                  (the first round trip does not count, as it opens the connection)
#     for a hub that learns        it has lost its data, and grants nothing before all nodes have reported
#     for what was refused just    a refusal in doubt begins a pause in which no request of the key asks: one sync
#     now                          interval at first, eight at most, as other nodes need so long to give back what they
#                                  hold. After a certain refusal the pause is one interval if use fades, or all nodes
#                                  would ask about each request that becomes free. A smaller cost may ask during a
#                                  pause, and no pause outlasts the window
#     in an event loop's thread    it would hold up the loop; also not in a signal handler or a finalizer, which
#                                  interrupts what the answer may depend on
#     by a clock that is set by    a wait of milliseconds might last for ever
#     hand

from __future__ import annotations

import logging
import re
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, get_args

from reconverge.clock import SECOND_NS, ManualClock
from reconverge.errors import InvalidSetting
from reconverge.kernel import AskGate, Cell, DecidingRule, Reentry, Settled, ShardState, Word
from reconverge.limit import CONCURRENCY
from reconverge.limiter.waiting.patience import Patience
from reconverge.limiter.waiting.running import run, run_blocking
from reconverge.limiter.waiting.waiters import LoopWaker, thread_waker
from reconverge.runtime.durations import Durations
from reconverge.runtime.interruptions import has_a_loop, in_a_handler
from reconverge.runtime.log_throttle import LoggedOnce
from reconverge.runtime.threads import Section, Total

if TYPE_CHECKING:
    from reconverge.decision import Decision
    from reconverge.kernel import Costs, Decider
    from reconverge.limiter.waiting.queue import Waker

logger = logging.getLogger("reconverge")

Result: TypeAlias = Literal["admitted", "refused", "unsettled", "timeout", "in_vain", "capped", "not_here"]
"""The way in which a request in doubt was decided. By the hub's answer: "admitted", "refused". From memory: because the
hub knew too little ("unsettled"), did not answer in time ("timeout") or had left earlier requests unanswered
("in_vain"), because the node asked too often ("capped"), or because the thread must not wait ("not_here")."""
RESULTS: Final[tuple[Result, ...]] = get_args(Result)
WITHIN_S: Final = 0.025
WITHIN_MAX_S: Final = 10.0
REFUSE: Final = "refuse"
"""The value of the setting `in_doubt` with which no request asks the hub: the node decides from its memory."""
ASK: Final = "ask:25ms"
_TIME: Final = re.compile(r"ask:(?P<number>[0-9]+(?:\.[0-9]+)?) ?(?P<unit>ms|s)")
IN_LOOP: Final = "ask with `await limiter.ask(...)`"
IN_LOOP_SLOT: Final = "enter the slot with `async with limiter.slot(...)`"
RETRY_MAX: Final = 7
"""The largest `retry` of a `Pause`: a pause lasts at most `1 + RETRY_MAX` sync intervals, the times between two
exchanges."""
PAUSES_MAX: Final = 1024
"""The number of stored pauses from which on a new pause makes the node delete the pauses that are over."""

Steps: TypeAlias = Generator[int, None, Settled]
"""A generator that yields how many nanoseconds to sleep, and returns the decision. A waker may end each sleep early."""


def within_s(in_doubt: object) -> float:
    """Returns the seconds for which a request in doubt waits for the hub: 0.0 for "refuse", 0.025 for "ask:25ms".

    Raises InvalidSetting for anything else, for a time of zero, and for more than ten seconds.
    """
    if in_doubt == REFUSE:
        return 0.0
    match = _TIME.fullmatch(in_doubt) if isinstance(in_doubt, str) else None
    if match is None:
        raise InvalidSetting("in_doubt", in_doubt, f"is neither {REFUSE!r} nor a time to ask within, such as {ASK!r}")
    asked_s = float(match["number"]) / (1000 if match["unit"] == "ms" else 1)
    if not 0 < asked_s <= WITHIN_MAX_S:
        raise InvalidSetting(
            "in_doubt", in_doubt, f"is not between 0 and {WITHIN_MAX_S:g} s, the longest that a request may wait"
        )
    return asked_s


@dataclass(frozen=True, slots=True)
class AskStats:
    """Statistics of one limit's requests in doubt: their number by result, and how long they waited for the hub."""

    results: dict[Result, int] = field(default_factory=lambda: dict.fromkeys(RESULTS, 0))
    durations: Durations = field(default_factory=Durations)
    """For the requests that waited for the hub's answer: how long each of them waited."""

    def __add__(self, other: AskStats) -> AskStats:
        both: dict[Result, int] = {result: self.results[result] + other.results[result] for result in RESULTS}
        return AskStats(both, self.durations + other.durations)


@dataclass(frozen=True, slots=True)
class AskedCost:
    """A request's question to the hub: the key, the cost by each quota, and the time that the request may wait.

    `units[i]` is what quota i charges for a cost of 1; if `units` is None, the charges cannot be corrected later.
    """

    key: str
    cost: int
    kind: str | None
    costs: Costs
    within_ns: int
    units: Costs | None = None


class Pause(NamedTuple):
    """A time in which requests about a key do not ask the hub, because the hub has just refused one of them."""

    until_ns: int
    retry: int
    """The length of the next pause if the hub refuses again, in sync intervals, minus one."""
    costs: Costs
    """The cost that the hub refused, for each quota. A request with a smaller cost may ask during the pause."""

    def holds(self, costs: Costs, now_ns: int) -> bool:
        """Returns True if a request with `costs` must not ask the hub now.

        This is so before the pause ends, unless a quota's cost is smaller than the cost that the hub refused.
        """
        return now_ns < self.until_ns and all(cost >= refused for cost, refused in zip(costs, self.costs, strict=True))


class Asking:
    """Lets the requests of one limit ask the hub if memory cannot decide for certain, and counts the results."""

    def __init__(self, limit: Decider) -> None:
        self.limit = limit
        self.gate = AskGate(limit)
        self._tables = limit.tables
        clock = self._tables[0].kernel.clock
        self.now_ns = clock.monotonic_ns
        self.manual = isinstance(clock, ManualClock)
        self._repeats = self._tables[0].meter.slots
        """True for limits on slots: a request that the hub refuses asks once more, as another node may just have given
        a slot back without the hub having got that node's report."""
        self._logged = LoggedOnce()
        self.start_over()

    def start_over(self) -> None:
        """Forgets all pauses and counted results, which belong to the parent process. Called in a forked child."""
        self._pauses: dict[str, Pause] = {}
        self._results: dict[Result, Total] = {result: Total() for result in RESULTS}
        self._durations = Durations()
        self._section = Section()

    @property
    def stats(self) -> AskStats:
        """Returns a copy of the numbers of requests by result, and of the times that they waited."""
        counts: dict[Result, int] = {result: total.value for result, total in self._results.items()}
        return AskStats(counts, self._durations.copy())

    def request(self, key: str, cost: int, kind: str | None, within_ns: int, *, marks: bool = False) -> AskedCost:
        """Returns the question to the hub about a request; with `marks`, its charges can be corrected later.

        Raises InvalidKey, InvalidCost, UnknownKind.
        """
        limit = self.limit
        units = limit.costs_of(1, kind) if marks else None
        return AskedCost(self._tables[0].check_key(key), cost, kind, limit.costs_of(cost, kind), within_ns, units)

    async def ask(self, request: AskedCost) -> Settled:
        """Decides about a request; in doubt, waits for the hub's answer in the running event loop."""
        settled = self.at_once(request)
        if settled is not None:
            return settled
        if self.manual:
            return self._from_memory(request, "not_here")
        waker = LoopWaker()
        try:
            return await run(self.steps(request, waker), waker.sleep)
        except Reentry:
            return Settled(self.limit.refuse_reentry(), ())

    def ask_blocking(self, request: AskedCost) -> Settled:
        """Decides as `ask`, waiting on the calling thread; if that thread must not wait, decides from memory."""
        settled = self.at_once(request)
        if settled is not None:
            return settled
        if self.manual or (request.within_ns and not self.may_block()):
            return self._from_memory(request, "not_here")
        waker = thread_waker()
        try:
            return run_blocking(self.steps(request, waker), waker.sleep)
        except Reentry:  # what this thread is in the middle of does not go on before this returns
            return Settled(self.limit.refuse_reentry(), ())

    def steps(self, request: AskedCost, waker: Waker) -> Steps:
        """Asks the hub, and decides by its answer, or from memory if the answer is late.

        A generator: yields each time to sleep, in nanoseconds, and returns the decision.
        """
        gate, began_ns = self.gate, self.now_ns()
        shards = gate.shards(request.key)
        unasked = self.unasked(request, shards, began_ns)
        if unasked is not None:
            return self._decide(request, unasked, counted=False)
        cells: list[Cell] = []
        try:
            asked_ns = self.join(request, shards, cells, waker)
            if asked_ns is None:
                self._results["capped"].add()
                return self._decide(request, DecidingRule.MEMORY)
            patience = Patience(shards, request.within_ns, began_ns, asked_ns)
            repeats = self._repeats
            while (sleep_ns := patience.sleep_ns(self.now_ns())) > 0:
                yield sleep_ns
                for shard in shards:
                    shard.note_looked(waker)
                if repeats and self._is_refused(request, cells, asked_ns):
                    repeats = False
                    yield self._tables[0].interval_min_ns
                    if gate.ask_again(cells):
                        asked_ns = self.now_ns()
                        patience = Patience(shards, request.within_ns, asked_ns, asked_ns)
                        continue
                settled = self._as_answered(request, cells, began_ns, asked_ns, patience)
                if settled is not None:
                    return settled
                if any(shard.in_vain for shard in shards):
                    break
            self.note_unanswered(shards, began_ns)
            return self._decide(request, DecidingRule.MEMORY)
        finally:
            self.leave(request, shards, cells, waker)

    def _is_refused(self, request: AskedCost, cells: list[Cell], asked_ns: int) -> bool:
        """Returns True if the hub has refused the request since `asked_ns`, and this node has no room for it."""
        gate = self.gate
        return (
            not gate.fits(request.key, request.costs) and gate.word_on(cells, request.costs, asked_ns) is Word.ANSWERED
        )

    def unasked(self, request: AskedCost, shards: list[ShardState], now_ns: int) -> DecidingRule | None:
        """Returns the rule to decide by at once if asking the hub is of no use now; None if the request should ask."""
        if any(shard.in_vain or shard.distance_ns >= request.within_ns for shard in shards):
            self._results["in_vain"].add()
            return DecidingRule.MEMORY
        if self.gate.learns(shards):
            self._results["unsettled"].add()
            return DecidingRule.MEMORY
        pause = self._pauses.get(request.key)
        return DecidingRule.ALLOWANCE if pause is not None and pause.holds(request.costs, now_ns) else None

    def join(self, request: AskedCost, shards: list[ShardState], cells: list[Cell], waker: Waker) -> int | None:
        """Adds a request to those that wait for the hub's answer. The caller must call `leave` afterwards.

        Returns a moment of the monotonic clock, in nanoseconds: each report to the hub after it contains the request's
        question. Returns None if the hub is not asked.
        """
        for table in self._tables:
            table.asks = table.policy.keeps_at_hub
        for shard in shards:
            shard.askers[waker] = None
        return self.gate.join(request.key, request.costs, cells)

    def leave(self, request: AskedCost, shards: list[ShardState], cells: list[Cell], waker: Waker) -> None:
        """Removes a request from those that wait for the hub's answer, whether or not it was answered."""
        for shard in shards:
            shard.forget_asker(waker)
        self.gate.leave(cells, request.costs)

    def note_unanswered(self, shards: list[ShardState], began_ns: int) -> None:
        """Records that the hub has not answered a request in time. Until its next answer, no other request waits."""
        for shard in shards:
            if shard.acked_ns < began_ns:
                shard.note_in_vain()
        self.note("timeout", began_ns)

    def _as_answered(
        self, request: AskedCost, cells: list[Cell], began_ns: int, asked_ns: int, patience: Patience
    ) -> Settled | None:
        """Decides if the hub has answered or this node has room; returns None if the request must go on waiting."""
        gate = self.gate
        settled = gate.settle(
            request.key, request.costs, DecidingRule.ALLOWANCE, refuse=False, counted=True, units=request.units
        )
        if settled is not None:
            self.note_answer(request, cells, settled.decision, began_ns)
            return settled
        word = gate.word_on(cells, request.costs, asked_ns)
        if word is Word.ANSWERED:
            settled = self._decide(request, DecidingRule.ALLOWANCE)
            self.note_answer(request, cells, settled.decision, began_ns)
            return settled
        if word is Word.UNSETTLED:
            self.note("unsettled", began_ns)
            return self._decide(request, DecidingRule.MEMORY)
        if word is Word.WITHHELD:
            patience.begin_at(gate.wait_out(cells), self.now_ns())
        if word is Word.MISSED:
            gate.ask_again(cells)
        return None

    def note_answer(self, request: AskedCost, cells: list[Cell], decision: Decision, began_ns: int) -> None:
        """Counts the hub's answer. A refusal begins a pause, in which no request of the key asks the hub."""
        self.note("admitted" if decision.allowed else "refused", began_ns)
        certain = decision.certain
        if decision.allowed or (certain and all(table.meter.aligned for table in self._tables)):
            self._pauses.pop(request.key, None)  # until a certain refusal is over, no request about the key asks
        else:
            self._pause(request, cells, grows=not certain and not any(cell.at_hub for cell in cells))

    def at_once(self, request: AskedCost) -> Settled | None:
        """Decides if the hub's answer could not change the decision; else (in doubt) charges nothing, returns None."""
        try:
            in_doubt = self.gate.in_doubt(request.key, request.costs)
        except Reentry:
            return Settled(self.limit.refuse_reentry(), ())
        if in_doubt:
            return None
        if request.units is None:
            return Settled(self.limit.hit(request.key, request.cost, request.kind), ())
        return self._decide(request, DecidingRule.MEMORY, counted=False)

    def _from_memory(self, request: AskedCost, result: Result) -> Settled:
        self._results[result].add()
        return self._decide(request, DecidingRule.MEMORY, counted=False)

    def _decide(self, request: AskedCost, rule: DecidingRule, *, counted: bool = True) -> Settled:
        """Decides by `rule`, and returns the decision. `counted` means that `join` has added the cost to the demand."""
        try:
            settled = self.gate.settle(
                request.key, request.costs, rule, refuse=True, counted=counted, units=request.units
            )
        except Reentry:
            return Settled(self.limit.refuse_reentry(), ())
        assert settled is not None
        return settled

    def note(self, result: Result, began_ns: int) -> None:
        """Counts a request that asked the hub with this `result`, and adds the time it waited since `began_ns`."""
        self._results[result].add()
        seconds = max(0, self.now_ns() - began_ns) / SECOND_NS
        self._section.run(lambda: self._durations.add(seconds))

    def _pause(self, request: AskedCost, cells: list[Cell], *, grows: bool) -> None:
        """Begins a pause of some sync intervals, in which requests of a key do not ask the hub, after it refused one.

        Meanwhile other nodes may give back unused allowance. With `grows`, it lasts longer than the key's last pause.
        """
        now_ns, pauses = self.now_ns(), self._pauses
        before = pauses.get(request.key)
        if before is not None and before.holds(request.costs, now_ns):
            return  # one of several that have asked at once
        interval_ns = min(table.interval_ns for table in self._tables)
        if len(pauses) >= PAUSES_MAX:
            for over in [key for key, pause in list(pauses.items()) if pause.until_ns <= now_ns]:
                pauses.pop(over, None)
        retry = before.retry if grows and before is not None else 0
        until_ns = min(now_ns + interval_ns * (1 + retry), self.gate.refused_until_ns(cells))
        pauses[request.key] = Pause(until_ns, min(RETRY_MAX, 2 * retry + 1), request.costs)

    def may_block(self) -> bool:
        """Returns whether the calling thread may wait for the hub. If not, logs a warning, once for each limit."""
        where = "on the thread of an event loop" if has_a_loop() else in_a_handler()
        if where and self._logged.is_new():
            logger.warning(
                "reconverge: the limit %r was asked %s, which must not wait for the hub, so the node decides from its"
                " memory, and may refuse or admit requests of small quotas wrongly; %s, or on another thread",
                self.limit.name,
                where,
                IN_LOOP_SLOT if self._tables[0].limit.algorithm == CONCURRENCY else IN_LOOP,
            )
        return not where


def checked_within_ns(within: object) -> int:
    """Converts `within`, the seconds for which a request in doubt may ask the hub, to nanoseconds.

    Raises InvalidSetting if it is out of range.
    """
    if isinstance(within, bool) or not isinstance(within, int | float) or not 0 <= within <= WITHIN_MAX_S:
        raise InvalidSetting("within", within, f"must be a number of seconds from 0 (do not ask) to {WITHIN_MAX_S:g}")
    return round(within * SECOND_NS)
