"""One node of a replayed fleet: a process that makes its part of the requests, and records its decisions.

Each request is decided twice under each policy, by two independent agents with the same settings and hub. One agent
decides by `RateLimiter.allow`, as in an application. This call is timed, and so is an increment in a dictionary, as the
least time that any limiter takes. Then the other agent decides, and its decisions are judged. Its call takes many times
as long, as it returns a `Verdict`, which names the window of the hub's clock to which the charge belongs.
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
"""The longest wait for the hub's first answer, in seconds; without an answer the node starts all the same."""
LAST_WORDS_S: Final = 10.0
PUBLISH_NS: Final = SECOND_NS // 20
"""The time, in nanoseconds, between two updates of a node's numbers for the live display."""
NAP_S: Final = 0.05
NEVER_NS: Final = 1 << 62
NOT_ASKED: Final = -1


@dataclass(frozen=True, slots=True)
class Share:
    """The requests that one node makes: sequences of equal length, in the order in which the requests are made."""

    moments_ns: array[int]
    """The moment of each request, in nanoseconds after the common start of all nodes."""
    keys: list[str]
    costs: array[int]
    settles: array[int]


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The instructions that every node of a replay gets: the limit, the policies, and the times."""

    limit: Limit
    policies: tuple[str, ...]
    """The policies. Each request is decided once under each, by an agent that shares nothing with the others."""
    namespaces: tuple[str, ...]
    timed_namespaces: tuple[str, ...]
    """The namespaces of the agents that decide by `RateLimiter.allow`, and are timed."""
    keys: int
    """The number of keys."""
    warm: bool
    """Whether the nodes ask the hub about all keys first."""
    sync_interval_s: float
    settle_after_ns: int
    """The time, in nanoseconds, from the admission of a request to its end."""
    stay_until_ns: int
    """The shortest time, in nanoseconds, for which a node stays after the common start."""
    asks_within_ns: int = 0
    """The longest wait of a request in doubt for the hub's answer, in nanoseconds; 0 if memory decides it."""


@dataclass(slots=True)
class NodeHistory:
    """The decisions of one node under one policy: arrays with one item for each request that the node makes."""

    allowed: array[int] = field(default_factory=lambda: array("b"))
    hub_ns: array[int] = field(default_factory=lambda: array("q"))
    """The moment of the decision, by the node's estimate of the hub's clock."""
    epoch: array[int] = field(default_factory=lambda: array("q"))
    slice_number: array[int] = field(default_factory=lambda: array("q"))
    known: array[int] = field(default_factory=lambda: array("b"))
    decision_ns: array[int] = field(default_factory=lambda: array("q"))
    """The duration of `RateLimiter.allow`."""
    floor_ns: array[int] = field(default_factory=lambda: array("q"))
    """The duration of an increment in a dictionary at that moment."""
    waited_ns: array[int] = field(default_factory=lambda: array("q"))
    """The wait of each request for the hub's answer, in nanoseconds; NOT_ASKED for a request that memory decided."""
    settled: list[tuple[int, int, int, int]] = field(default_factory=list)
    """The index of each settled request, with the hub's time, the window and the slice of the settlement."""
    exchanges: int = 0
    failures: dict[str, int] = field(default_factory=dict)

    def add(self, verdict: Verdict) -> None:
        """Appends the decision `verdict` on the next of the node's requests."""
        self.allowed.append(verdict.allowed)
        self.hub_ns.append(verdict.hub_ns)
        self.epoch.append(verdict.epoch)
        self.slice_number.append(verdict.slice_number)
        self.known.append(verdict.known)
        self.waited_ns.append(NOT_ASKED)

    def put(self, index: int, verdict: Verdict, waited_ns: int) -> None:
        """Replaces the decision on the request at `index` by `verdict`, for which the request waited `waited_ns`."""
        self.allowed[index] = verdict.allowed
        self.hub_ns[index] = verdict.hub_ns
        self.epoch[index] = verdict.epoch
        self.slice_number[index] = verdict.slice_number
        self.known[index] = verdict.known
        self.waited_ns[index] = waited_ns


class Gauge:
    """Numbers in shared memory that a node updates while it runs: requests made, and admitted by each policy."""

    def __init__(self, done: c_longlong, admitted: list[c_longlong]) -> None:
        self.done = done
        self.admitted = admitted


def work(hub_url: str, plan: ReplayPlan, share: Share, gauge: Gauge, parent: Connection) -> None:
    """Runs a node: prepares it, waits for the common start, makes the requests, and sends the history."""
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
    except (_Abandoned, EOFError, OSError):  # the parent has ended
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
    """Returns an agent for each policy of the plan, in the namespace at the policy's index. Raises ReconvergeError."""
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
    """Calls a limiter as an application does, and records how long each call takes."""

    def __init__(self, limiter: RateLimiter) -> None:
        self.limiter = limiter
        self.decision_ns = array("q")
        self.floor_ns = array("q")
        self._used: defaultdict[str, int] = defaultdict(int)

    def ask(self, key: str, cost: int) -> None:
        """Times a call of the limiter and an increment in a dictionary, the least that any limiter could do.

        The one that runs first is slower, as the processor's caches are cold, so they take turns.
        """
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
    """Awaits the decision of `limiter` on a request that may wait for the hub's answer.

    Returns the result, the verdict by which it is judged, and the moment of the decision in monotonic nanoseconds. The
    moment is read here, because a busy event loop may resume the caller much later.
    """
    settled = await limiter.control.enforcement.on.asking.ask(request)
    decided_ns = SystemClock.monotonic_ns()
    return settled, limiter.control.table.observe(request.key, decided_ns), decided_ns


def _known(limiter: RateLimiter, share: Share) -> bool:
    """Whether the hub has answered the node about every key of `share`."""
    now_ns = SystemClock.monotonic_ns()
    return all(limiter.control.table.observe(key, now_ns).known for key in set(share.keys))


class _Abandoned(Exception):
    """Raised in a node when the process that started it has ended, so that none waits for the node's history."""


class _Pace:
    """Measures the time from the common start of the fleet."""

    def __init__(self, start_ns: int, parent: Connection) -> None:
        self._start_ns = start_ns
        self._parent = parent

    def passed_ns(self) -> int:
        return SystemClock.monotonic_ns() - self._start_ns

    def left_s(self, moment_ns: int) -> float:
        """Returns for how many seconds to sleep until `moment_ns` after the start, NAP_S at most.

        Raises _Abandoned if the parent process has ended.
        """
        left_ns = moment_ns - self.passed_ns()
        if left_ns > 0 and self._parent.poll():  # the parent sends nothing more, so this means that it has ended
            raise _Abandoned
        return min(left_ns / SECOND_NS, NAP_S)


class _Requests:
    """Makes a node's part of the requests, each at its time; several may wait for the hub's answer at once."""

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
        """The end of each admitted request that is to be settled, the number of its policy, and its index."""
        self._asks: set[asyncio.Task[None]] = set()
        """The tasks of requests that wait for the hub's answer."""

    async def make_all(self, gauge: Gauge) -> None:
        """Makes all requests of this node; also charges the costs that are known only when a request is over."""
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
        """Decides the request at `index` under the policy `number`, now or, in a task, when the hub has answered."""
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
        """Decides a request as `RateLimiter.ask` does, and adds the verdict by which it is judged to the history."""
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
        for charge in settled.charges:  # of one quota: the window that was charged, even if it has ended since
            verdict = verdict._replace(epoch=charge.mark.epoch)
            if (dates := charge.mark.cell.history) is not None:
                verdict = verdict._replace(slice_number=charge.mark.look + dates.shift)
        # A request that is admitted for certain is within the allowance for a known key. The first answer about another
        # key may have come after the admission.
        known = bool(history.known[index]) or settled.decision.certain
        verdict = verdict._replace(allowed=settled.decision.allowed, known=known)
        history.put(index, verdict, decided_ns - began_ns if asked else NOT_ASKED)
        self._note_admission(number, index)

    def _note_admission(self, number: int, index: int) -> None:
        if self._histories[number].allowed[index] and self._share.settles[index]:
            self._over.append((self._pace.passed_ns() + self._plan.settle_after_ns, number, index))

    async def _settle(self, until_ns: int) -> None:
        """Charges the settled costs of the requests that are over by `until_ns`, each at the moment of its end."""
        while self._over and self._over[0][0] <= until_ns:
            over_ns, number, index = self._over.popleft()
            await self._wait_until(over_ns)
            history, table, key = self._histories[number], self._limiters[number].control.table, self._share.keys[index]
            table.correct(key, history.epoch[index], self._share.settles[index])
            verdict = table.observe(key, SystemClock.monotonic_ns())
            history.settled.append((index, verdict.hub_ns, verdict.epoch, verdict.slice_number))

    async def _wait_until(self, moment_ns: int) -> None:
        """Waits until `moment_ns` nanoseconds after the fleet's common start.

        Raises _Abandoned if the process that started this node has ended.
        """
        if self._asks:
            await asyncio.sleep(0)
        while (left_s := self._pace.left_s(moment_ns)) > 0:
            # An event loop sleeps in whole milliseconds, so it sleeps only while other tasks run in it.
            if self._asks:
                await asyncio.sleep(left_s)
            else:
                time.sleep(left_s)  # noqa: ASYNC251  # as said


def _publish(gauge: Gauge, histories: list[NodeHistory], done: int) -> None:
    gauge.done.value = done
    for counter, history in zip(gauge.admitted, histories, strict=True):
        counter.value = history.allowed.count(1)
