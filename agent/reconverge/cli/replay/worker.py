"""One node of a replayed fleet: a process that makes its share of the requests, and remembers what it decided.

Two agents that share nothing decide each request under each policy. What the first decides is judged. It is asked for a
`Verdict`, which says to which window of the hub's clock the charge belongs, and which costs many times what
`RateLimiter.allow` does. So a second agent, with the same settings, hub and wire, is asked before it by
`RateLimiter.allow`, as an application asks, and that call alone is timed. An increment in a dictionary is timed in the
same way beside it, as the floor.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from array import array
from collections import defaultdict, deque
from ctypes import c_longlong
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Final

from reconverge.agent.agent import Agent
from reconverge.clock import SECOND_NS, SystemClock
from reconverge.errors import CostExceedsQuota, ReconvergeError
from reconverge.limit.limit import Limit

if TYPE_CHECKING:
    from reconverge.kernel import Settled, Verdict
    from reconverge.limiter.asking import AskedCost
    from reconverge.limiter.faces.rate_limiter import RateLimiter

LIMIT_NAME: Final = "replayed"
READY_S: Final = 10.0
"""The longest to wait for the hub's first answer; without one the node begins all the same, as any node would."""
LAST_WORDS_S: Final = 10.0
PUBLISH_NS: Final = SECOND_NS // 20
"""How often the numbers for the live display are brought up to date."""
NAP_S: Final = 0.05
NEVER_NS: Final = 1 << 62
NOT_ASKED: Final = -1


@dataclass(frozen=True, slots=True)
class Share:
    """The requests that one node makes. Parallel sequences, in the order of their moments."""

    moments_ns: array[int]
    """When to make each request, after the common start."""
    keys: list[str]
    costs: array[int]
    settles: array[int]


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The instructions for every node of the fleet."""

    limit: Limit
    policies: tuple[str, ...]
    """Each request is decided once under each of them, by an agent of its own that shares nothing with the others."""
    namespaces: tuple[str, ...]
    timed_namespaces: tuple[str, ...]
    """Of the agents that are asked by `RateLimiter.allow`, and timed."""
    keys: int
    """How many there are."""
    warm: bool
    """Ask the hub about all of them first."""
    sync_interval_s: float
    settle_after_ns: int
    """How long after it was admitted a request is over."""
    stay_until_ns: int
    """How long after the common start a node stays at least."""
    asks_within_ns: int = 0
    """How long a request in doubt asks the hub; 0 where memory decides."""


@dataclass(slots=True)
class NodeHistory:
    """One node's run under one policy: parallel arrays, one item for each request, in the order of its share."""

    allowed: array[int] = field(default_factory=lambda: array("b"))
    hub_ns: array[int] = field(default_factory=lambda: array("q"))
    """When it was decided, by the node's idea of the hub's clock."""
    epoch: array[int] = field(default_factory=lambda: array("q"))
    slice_number: array[int] = field(default_factory=lambda: array("q"))
    known: array[int] = field(default_factory=lambda: array("b"))
    decision_ns: array[int] = field(default_factory=lambda: array("q"))
    """The duration of `RateLimiter.allow`."""
    floor_ns: array[int] = field(default_factory=lambda: array("q"))
    """The duration of an increment in a dictionary at that moment."""
    waited_ns: array[int] = field(default_factory=lambda: array("q"))
    """How long a request waited that asked; NOT_ASKED of any other."""
    settled: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Which request, at which time of the hub and in which of its windows and slices."""
    exchanges: int = 0
    failures: dict[str, int] = field(default_factory=dict)

    def add(self, verdict: Verdict) -> None:
        """One more request was decided."""
        self.allowed.append(verdict.allowed)
        self.hub_ns.append(verdict.hub_ns)
        self.epoch.append(verdict.epoch)
        self.slice_number.append(verdict.slice_number)
        self.known.append(verdict.known)
        self.waited_ns.append(NOT_ASKED)

    def put(self, index: int, verdict: Verdict, waited_ns: int) -> None:
        """A request was decided that was added before."""
        self.allowed[index] = verdict.allowed
        self.hub_ns[index] = verdict.hub_ns
        self.epoch[index] = verdict.epoch
        self.slice_number[index] = verdict.slice_number
        self.known[index] = verdict.known
        self.waited_ns[index] = waited_ns


class Gauge:
    """Numbers in shared memory that a node publishes while it runs: requests made, and admitted by each policy."""

    def __init__(self, done: c_longlong, admitted: list[c_longlong]) -> None:
        self.done = done
        self.admitted = admitted


def work(hub_url: str, plan: ReplayPlan, share: Share, gauge: Gauge, parent: Connection) -> None:
    """The whole life of a node: get ready, say so, wait for the common start, make the requests, report the results."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    logging.getLogger("reconverge").setLevel(logging.ERROR)  # outages are part of the plan
    try:
        agents = _agents(hub_url, plan, plan.namespaces)
        timed_agents = _agents(hub_url, plan, plan.timed_namespaces)
        limiters = [agent.limit(LIMIT_NAME, plan.limit) for agent in agents]
        timed = [Timed(agent.limit(LIMIT_NAME, plan.limit)) for agent in timed_agents]
    except ReconvergeError as error:
        parent.send(str(error))
        return
    all_agents = agents + timed_agents
    for agent in all_agents:
        agent.start()
    deadline_ns = SystemClock.monotonic_ns() + int(READY_S * SECOND_NS)
    asked = [*limiters, *(each.limiter for each in timed)] if plan.warm else []
    for limiter in asked:
        limiter.warm(set(share.keys))
    while SystemClock.monotonic_ns() < deadline_ns:
        if all(agent.ready for agent in all_agents) and all(_known(limiter, share) for limiter in asked):
            break
        time.sleep(NAP_S / 10)
    histories = [NodeHistory() for _ in agents]
    try:
        parent.send(None)
        start_ns: int = parent.recv()
        asyncio.run(_Requests(plan, share, limiters, timed, histories, _Pace(start_ns, parent)).make_all(gauge))
    except (_Abandoned, EOFError, OSError):  # the parent is gone
        return
    for each, history in zip(timed, histories, strict=True):
        history.decision_ns, history.floor_ns = each.decision_ns, each.floor_ns
    for agent in timed_agents:
        agent.stop(LAST_WORDS_S)
    for agent, history in zip(agents, histories, strict=True):
        agent.stop(LAST_WORDS_S)
        for shard in agent.stats().exchanges:
            history.exchanges += shard.exchanges + sum(shard.failures.values())
            history.failures = dict(shard.failures)
    with contextlib.suppress(OSError):
        parent.send(histories)


def _agents(hub_url: str, plan: ReplayPlan, namespaces: tuple[str, ...]) -> list[Agent]:
    """One for each policy. Raises ReconvergeError."""
    return [
        Agent(
            hub_url,
            namespace=namespace,
            sync_interval=plan.sync_interval_s,
            policy=policy,
            max_keys=max(plan.keys, 1000),
        )
        for policy, namespace in zip(plan.policies, namespaces, strict=True)
    ]


class Timed:
    """Asks a limiter as an application does, and keeps how long that took."""

    def __init__(self, limiter: RateLimiter) -> None:
        self.limiter = limiter
        self.decision_ns = array("q")
        self.floor_ns = array("q")
        self._used: defaultdict[str, int] = defaultdict(int)

    def ask(self, key: str, cost: int) -> None:
        """Ask, and do the least that a limiter could do. What comes first finds cold caches, so they take turns."""
        if len(self.decision_ns) % 2:
            self._increment(key)
            self._allow(key, cost)
        else:
            self._allow(key, cost)
            self._increment(key)

    def _allow(self, key: str, cost: int) -> None:
        began_ns = SystemClock.monotonic_ns()
        try:  # noqa: SIM105  # a context manager would be timed as well
            self.limiter.allow(key, cost)
        except CostExceedsQuota:
            pass
        self.decision_ns.append(SystemClock.monotonic_ns() - began_ns)

    def _increment(self, key: str) -> None:
        began_ns = SystemClock.monotonic_ns()
        self._used[key] += 1
        self.floor_ns.append(SystemClock.monotonic_ns() - began_ns)


async def answered(limiter: RateLimiter, request: AskedCost) -> tuple[Settled, Verdict, int]:
    """Ask, and note at which moment it was decided: until the caller goes on, a busy loop does much else."""
    settled = await limiter.control.enforcement.on.asking.ask(request)
    decided_ns = SystemClock.monotonic_ns()
    return settled, limiter.control.table.observe(request.key, decided_ns), decided_ns


def _known(limiter: RateLimiter, share: Share) -> bool:
    """Whether the hub has answered about every key of this share."""
    now_ns = SystemClock.monotonic_ns()
    return all(limiter.control.table.observe(key, now_ns).known for key in set(share.keys))


class _Abandoned(Exception):
    """Raised when the process that started this node no longer waits for its history."""


class _Pace:
    """How long it is until moments after the common start."""

    def __init__(self, start_ns: int, parent: Connection) -> None:
        self._start_ns = start_ns
        self._parent = parent

    def passed_ns(self) -> int:
        """How long it is since the start."""
        return SystemClock.monotonic_ns() - self._start_ns

    def left_s(self, moment_ns: int) -> float:
        """How long to sleep now, a while at most, until it is so long after the start. Raises _Abandoned."""
        left_ns = moment_ns - self.passed_ns()
        if left_ns > 0 and self._parent.poll():  # it has nothing to say any more, so it is gone
            raise _Abandoned
        return min(left_ns / SECOND_NS, NAP_S)


class _Requests:
    """Makes the requests of a share, each at its time; those that ask wait beside each other."""

    def __init__(
        self,
        plan: ReplayPlan,
        share: Share,
        limiters: list[RateLimiter],
        timed: list[Timed],
        histories: list[NodeHistory],
        pace: _Pace,
    ) -> None:
        self._plan = plan
        self._share = share
        self._limiters = limiters
        self._timed = timed
        self._histories = histories
        self._pace = pace
        self._over: deque[tuple[int, int, int]] = deque()
        """When a request is over, which policy admitted it, and which one it is."""
        self._asks: set[asyncio.Task[None]] = set()
        """Of requests that wait for the hub's answer."""

    async def make_all(self, gauge: Gauge) -> None:
        """Make them, and settle what they turn out to cost."""
        share, published_ns = self._share, 0
        for index, moment_ns in enumerate(share.moments_ns):
            await self._settle(moment_ns)
            await self._wait_until(moment_ns)
            await self._settle(self._pace.passed_ns())  # a node that lags behind its schedule is asked late
            for number, timed in enumerate(self._timed):
                timed.ask(share.keys[index], share.costs[index])
                self._make(number, index)
            if moment_ns - published_ns > PUBLISH_NS:
                published_ns = moment_ns
                _publish(gauge, self._histories, index + 1)
        while self._asks:
            await asyncio.wait(self._asks)
        await self._settle(NEVER_NS)
        _publish(gauge, self._histories, len(share.keys))
        await self._wait_until(self._plan.stay_until_ns)

    def _make(self, number: int, index: int) -> None:
        """Decides about a request under one policy, now or when the hub has answered."""
        limiter, key, cost = self._limiters[number], self._share.keys[index], self._share.costs[index]
        began_ns = SystemClock.monotonic_ns()
        history = self._histories[number]
        if self._plan.asks_within_ns:
            history.add(limiter.control.table.observe(key, began_ns))
            ask = asyncio.create_task(self._ask(number, index, began_ns))
            self._asks.add(ask)
            ask.add_done_callback(self._asks.discard)
            return
        try:
            verdict = limiter.control.table.decide(key, cost, began_ns)
        except CostExceedsQuota:
            # A request that can never be admitted is a refused one.
            verdict = limiter.control.table.observe(key, began_ns)
        history.add(verdict)
        self._note_admission(number, index)

    async def _ask(self, number: int, index: int, began_ns: int) -> None:
        """Decide as `RateLimiter.ask` does, with what an observer needs to check the answer."""
        limiter, history, key = self._limiters[number], self._histories[number], self._share.keys[index]
        request = limiter.control.enforcement.on.asking.request(
            key, self._share.costs[index], None, self._plan.asks_within_ns, marks=True
        )
        deciding = asyncio.create_task(answered(limiter, request))
        await asyncio.sleep(0)  # after which it is decided, unless it asks
        asked = not deciding.done()
        try:
            settled, verdict, decided_ns = await deciding
        except CostExceedsQuota:
            return
        for charge in settled.charges:  # of one quota: what it was charged to, also if a window has ended since
            verdict = verdict._replace(epoch=charge.mark.epoch)
            if (dates := charge.mark.cell.history) is not None:
                verdict = verdict._replace(slice_number=charge.mark.look + dates.shift)
        # What is admitted for certain is within the line of a key that was heard of; the first word on another key may
        # have come since it was admitted.
        known = bool(history.known[index]) or settled.decision.certain
        verdict = verdict._replace(allowed=settled.decision.allowed, known=known)
        history.put(index, verdict, decided_ns - began_ns if asked else NOT_ASKED)
        self._note_admission(number, index)

    def _note_admission(self, number: int, index: int) -> None:
        if self._histories[number].allowed[index] and self._share.settles[index]:
            self._over.append((self._pace.passed_ns() + self._plan.settle_after_ns, number, index))

    async def _settle(self, until_ns: int) -> None:
        """Charge what requests turned out to cost that are over by `until_ns`, each at its time."""
        while self._over and self._over[0][0] <= until_ns:
            over_ns, number, index = self._over.popleft()
            await self._wait_until(over_ns)
            history, table, key = self._histories[number], self._limiters[number].control.table, self._share.keys[index]
            table.correct(key, history.epoch[index], self._share.settles[index])
            verdict = table.observe(key, SystemClock.monotonic_ns())
            history.settled.append((index, verdict.hub_ns, verdict.epoch, verdict.slice_number))

    async def _wait_until(self, moment_ns: int) -> None:
        """Wait until so long after the start. Raises _Abandoned."""
        if self._asks:
            await asyncio.sleep(0)
        while (left_s := self._pace.left_s(moment_ns)) > 0:
            # A loop sleeps by the millisecond, so it does so only where something else goes on in it.
            if self._asks:
                await asyncio.sleep(left_s)
            else:
                time.sleep(left_s)  # noqa: ASYNC251  # as said


def _publish(gauge: Gauge, histories: list[NodeHistory], done: int) -> None:
    gauge.done.value = done
    for counter, history in zip(gauge.admitted, histories, strict=True):
        counter.value = history.allowed.count(1)
