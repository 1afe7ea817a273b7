"""Replays a recording on a fleet of real processes, and collects their histories: the decisions of each."""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import signal
import threading
import time
from array import array
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnProcess
from secrets import token_hex
from types import FrameType, TracebackType
from typing import Any, Final, Literal, Protocol, Self, TypeVar, runtime_checkable
from zlib import crc32

from reconverge.cli.replay.link import Cut, Links, check_cuttable
from reconverge.cli.replay.trace import RecordedRequest
from reconverge.cli.replay.worker import LAST_WORDS_S, LIMIT_NAME, READY_S, Gauge, NodeHistory, ReplayPlan, Share, work
from reconverge.clock import SECOND_NS, SystemClock
from reconverge.errors import HubUnavailable, InvalidSetting, ReconvergeError
from reconverge.hub.port import Hub
from reconverge.hub.registry import MEMORY, HubSettings, open_hub, scheme_of
from reconverge.hub.report import Batch
from reconverge.limit.limit import Limit
from reconverge.runtime.process import nothing_from_the_working_directory, started_before_the_end

NODES_MAX: Final = 64
TICK_S: Final = 0.02
START_S: Final = 60.0
"""The longest that all processes together may take to start on a slow machine."""
HUB_TIMEOUT_S: Final = 2.0
ELECTED_S: Final = 30.0
"""The longest wait for an elected leader, in seconds; an election takes far less."""
NO_LEADER_YET: Final = "no-leader"
AFTER_CUT_S: Final = 2.0
"""Seconds for which the nodes run on after the last cut, so that all exchange with the hub again at the end."""
LEARNING_S: Final = 1.1
"""Seconds, beyond the sync interval, for which a new hub grants no allowances to strict nodes."""

Spread = Literal["round-robin", "hash"]
_T = TypeVar("_T")


class FleetFailed(ReconvergeError):
    """Raised when a node of the fleet was lost, and with it the history of its decisions."""


@dataclass(frozen=True, slots=True)
class Setup:
    """The requests to replay and the fleet that decides them. The limit's window is already divided by `speed`."""

    requests: Sequence[RecordedRequest]
    limit: Limit
    policies: tuple[str, ...]
    nodes: int
    speed: float
    hub_url: str
    sync_interval_s: float
    spread: Spread = "round-robin"
    cuts: tuple[Cut, ...] = ()
    settle_after_s: float = 0.0
    """The duration of a request, in seconds of the recording's time."""
    warm: bool = False
    """Whether every node asks the hub about all its keys before the run begins."""
    asks_within_ns: int = 0
    """The longest wait of a request in doubt for the hub's answer, in nanoseconds of real time; 0 if memory decides
    it."""
    name: str = field(default_factory=lambda: token_hex(6))
    """The name of this run; part of its namespaces."""

    def namespace(self, policy: str) -> str:
        """Returns the namespace of the agents that decide under `policy`."""
        return f"replay-{self.name}-{policy}"

    def deal(self) -> list[list[int]]:
        """Divides the requests among the nodes. Returns for each node the indexes of its requests."""
        hands: list[list[int]] = [[] for _ in range(self.nodes)]
        for number, request in enumerate(self.requests):
            by = number if self.spread == "round-robin" else crc32(request.key.encode())
            hands[by % self.nodes].append(number)
        return hands

    def duration_s(self) -> float:
        """Returns how long the run takes at least, in real seconds."""
        ends_s = [self.requests[-1].t_s / self.speed, *(cut.end_s + AFTER_CUT_S for cut in self.cuts)]
        return max(ends_s)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a run: the requests made and admitted so far, and the nodes that are cut off from the hub."""

    elapsed_s: float
    duration_s: float
    done: tuple[int, ...]
    """Requests made, by node."""
    admitted: tuple[tuple[int, ...], ...]
    """Requests admitted, by node and policy."""
    cut: frozenset[int]
    """The nodes that are cut off at this moment."""


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """The result of a replay: the requests of each node (`hands`), its decisions, and the totals at the hub."""

    setup: Setup
    hands: list[list[int]]
    histories: list[list[NodeHistory]]
    """The histories by node and policy; a history has one item for each request that `hands` gives to the node."""
    hub_totals: list[int]
    """The hub's totals at the end, by policy: the charges minus the refunds."""


class _ReplayNode:
    """A worker process of the replay, which its parent starts, sends messages to, and ends."""

    def __init__(self, hub_url: str, plan: ReplayPlan, share: Share) -> None:
        context = multiprocessing.get_context("spawn")
        done = context.RawValue(ctypes.c_longlong)
        admitted = [context.RawValue(ctypes.c_longlong) for _ in plan.policies]
        self.gauge = Gauge(done, admitted)
        self.pipe, theirs = context.Pipe()
        self._process: SpawnProcess = context.Process(
            target=work, args=(hub_url, plan, share, self.gauge, theirs), name="reconverge-node", daemon=True
        )
        with _uninterrupted(), started_before_the_end(), nothing_from_the_working_directory():
            self._process.start()
        theirs.close()

    def hear(self, deadline_s: float) -> object:
        """Returns the worker's next message. Raises FleetFailed if none comes in time, or the worker has ended."""
        try:
            if self.pipe.poll(max(0.0, deadline_s - time.monotonic())):
                return self.pipe.recv()
        except EOFError:
            self._process.join(1.0)
            raise FleetFailed(
                f"a node of the replay ended with status {self._process.exitcode}, so its results are lost; try again"
            ) from None
        raise FleetFailed(
            "a node of the replay does not answer any more, so its results are lost; run the replay again"
        )

    def end(self) -> None:
        self.pipe.close()
        if self._process.is_alive():
            self._process.terminate()
        self._process.join(LAST_WORDS_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


@contextmanager
def _uninterrupted() -> Generator[None]:
    """Blocks interrupts during a `with` block: a process that is interrupted while it starts prints a long traceback.

    The new process inherits the signal mask, and never receives an interrupt. The mask applies to this thread alone:
    another thread may receive an interrupt, but Python handles it in this one, the main thread.
    """
    interrupts: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        interrupts.append(number)

    handler = signal.signal(signal.SIGINT, remember)
    resource_tracker.ensure_running()  # now, because it lifts the mask when it is started
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.signal(signal.SIGINT, handler)
    if interrupts:
        raise KeyboardInterrupt


@runtime_checkable
class _LocatedRequest(Protocol):
    """A hub with an address of its own, `url`, which nodes use in place of the URL with which the hub was opened."""

    @property
    def url(self) -> str: ...


def run(setup: Setup, watch: Callable[[Progress], None]) -> ReplayOutcome:
    """Runs the recording, and returns its outcome; calls `watch` with the progress again and again.

    Raises:
        InvalidSetting: processes cannot share the hub, or nodes cannot be cut off from it.
        HubUnavailable: the hub cannot be reached.
        FleetFailed: a node was lost.
    """
    if scheme_of(setup.hub_url) == MEMORY:
        raise InvalidSetting("hub", setup.hub_url, "is private to one process; use embedded:// or redis://")
    if setup.cuts:
        check_cuttable(setup.hub_url)
    namespaces = tuple(map(setup.namespace, setup.policies))
    timed_namespaces = tuple(f"{namespace}-timed" for namespace in namespaces)
    settings = [HubSettings(namespace, HUB_TIMEOUT_S) for namespace in (*namespaces, *timed_namespaces)]
    with ExitStack() as stack:
        runner = stack.enter_context(_ReplayRunner())
        hubs = [open_hub(setup.hub_url, each) for each in settings]
        for hub in hubs:
            stack.callback(_close, runner, hub)
            runner.run(_answered(partial(_say_hello, hub, setup)))
        learnt_s = time.monotonic() + (
            0.0 if setup.hub_url.startswith("embedded") else LEARNING_S + setup.sync_interval_s
        )
        links = _links(setup, hubs[0])
        if links is not None:
            stack.enter_context(links)
        hands = setup.deal()
        plan = _plan(setup, namespaces, timed_namespaces)
        nodes: list[_ReplayNode] = []
        stack.callback(_end_all, nodes)
        for number, hand in enumerate(hands):
            nodes.append(_ReplayNode(setup.hub_url if links is None else links.url(number), plan, _share(setup, hand)))
        _await_readiness(nodes)
        start_s = max(time.monotonic() + 0.1, learnt_s)
        for node in nodes:
            left_s = start_s - time.monotonic()
            node.pipe.send(SystemClock.monotonic_ns() + round(left_s * SECOND_NS))
        _oversee(setup, nodes, links, start_s, watch)
        histories = [_history(node.hear(time.monotonic())) for node in nodes]
        totals = [runner.run(_answered(hub.totals)) for hub in hubs[: len(namespaces)]]
    nets = [total[LIMIT_NAME].net if LIMIT_NAME in total else 0 for total in totals]
    return ReplayOutcome(setup, hands, histories, nets)


class _ReplayRunner:
    """Runs an event loop on a thread of its own, as a hub may have work to do in the loop while the fleet runs."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="reconverge-hubs", daemon=True)

    def run(self, what: Coroutine[Any, Any, _T]) -> _T:
        """Runs a coroutine on the event loop, and waits for its end. Returns its result, or raises its error."""
        return asyncio.run_coroutine_threadsafe(what, self._loop).result()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


def _close(runner: _ReplayRunner, hub: Hub) -> None:
    runner.run(hub.close())


async def _answered(ask: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """Calls `ask` until a member of the broker's cluster answers, as the members have to elect a leader first."""
    deadline_s = time.monotonic() + ELECTED_S
    while True:
        try:
            return await ask()
        except HubUnavailable as error:
            if error.kind != NO_LEADER_YET or time.monotonic() > deadline_s:
                raise


def _end_all(nodes: list[_ReplayNode]) -> None:
    for node in nodes:
        node.end()


async def _say_hello(hub: Hub, setup: Setup) -> None:
    """Creates the hub's data before the fleet starts, which also shows that the hub can be used."""
    interval_us = round(setup.sync_interval_s * 1_000_000)
    name = token_hex(8)
    for shard in range(hub.shards):
        await hub.exchange(Batch(name, name, shard, 1, "", interval_us, 30_000_000, True, (), ()))


def _links(setup: Setup, hub: Hub) -> Links | None:
    if not setup.cuts:
        return None
    return Links(hub.url if isinstance(hub, _LocatedRequest) else setup.hub_url, setup.nodes)


def _plan(setup: Setup, namespaces: tuple[str, ...], timed_namespaces: tuple[str, ...]) -> ReplayPlan:
    return ReplayPlan(
        limit=setup.limit,
        policies=setup.policies,
        namespaces=namespaces,
        timed_namespaces=timed_namespaces,
        keys=len({request.key for request in setup.requests}),
        warm=setup.warm,
        sync_interval_s=setup.sync_interval_s,
        settle_after_ns=round(setup.settle_after_s / setup.speed * SECOND_NS),
        stay_until_ns=round(setup.duration_s() * SECOND_NS),
        asks_within_ns=setup.asks_within_ns,
    )


def _share(setup: Setup, hand: list[int]) -> Share:
    requests = [setup.requests[number] for number in hand]
    return Share(
        moments_ns=array("q", (round(request.t_s / setup.speed * SECOND_NS) for request in requests)),
        keys=[request.key for request in requests],
        costs=array("q", (request.cost for request in requests)),
        settles=array("q", (request.settle for request in requests)),
    )


def _await_readiness(nodes: list[_ReplayNode]) -> None:
    deadline_s = time.monotonic() + START_S + READY_S
    for node in nodes:
        problem = node.hear(deadline_s)
        if problem is not None:
            raise FleetFailed(f"a node of the replay could not start: {problem}")


def _oversee(
    setup: Setup, nodes: list[_ReplayNode], links: Links | None, start_s: float, watch: Callable[[Progress], None]
) -> None:
    """Cuts nodes off from the hub and connects them again, at the planned times, until all have sent their history."""
    duration_s = setup.duration_s() + setup.settle_after_s / setup.speed
    cut: frozenset[int] = frozenset()
    patience = _LagPatience()
    while not all(node.pipe.poll() for node in nodes):
        elapsed_s = time.monotonic() - start_s
        now_cut = frozenset[int]().union(*(one.nodes for one in setup.cuts if one.start_s <= elapsed_s < one.end_s))
        if links is not None:
            links.cut(now_cut - cut)
            links.heal(cut - now_cut)
        cut = now_cut
        progress = _progress(nodes, elapsed_s, duration_s, cut)
        watch(progress)
        if elapsed_s > duration_s:
            patience.see(sum(progress.done))
        time.sleep(TICK_S)
    watch(_progress(nodes, duration_s, duration_s, frozenset()))


class _LagPatience:
    """Waits for a fleet that lags behind its schedule, as long as it makes any progress."""

    def __init__(self) -> None:
        self._done = -1
        self._since_s = 0.0

    def see(self, done: int) -> None:
        """Notes how many requests were made by now. Raises FleetFailed if that has not changed for too long."""
        if done != self._done:
            self._done, self._since_s = done, time.monotonic()
        elif time.monotonic() > self._since_s + 3 * LAST_WORDS_S:
            raise FleetFailed(
                f"no node has made a request for {3 * LAST_WORDS_S:g} s, after {done} requests; run the replay again"
            )


def _progress(nodes: list[_ReplayNode], elapsed_s: float, duration_s: float, cut: frozenset[int]) -> Progress:
    return Progress(
        elapsed_s=max(0.0, elapsed_s),
        duration_s=duration_s,
        done=tuple(node.gauge.done.value for node in nodes),
        admitted=tuple(tuple(counter.value for counter in node.gauge.admitted) for node in nodes),
        cut=cut,
    )


def _history(message: object) -> list[NodeHistory]:
    assert isinstance(message, list)
    return message
