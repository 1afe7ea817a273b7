"""A process under a storm of signals whose handlers decide and raise.

Two signals come at any moment of a decision. The handler of SIGALRM decides, and then raises in most cases, as a soft
time limit does; the handler of SIGUSR1 decides and returns, as a rate-limited log does. Meanwhile other threads decide
on the same keys: a lock that an interrupted frame leaves behind is seen by another thread, and not always by its
own. In each turn an agent is also made, started by a decision under the storm, and stopped: it has one runner at most.

The counts are of decisions that returned True, and of interrupted ones, which may have charged or not. So

    returned True <= own <= returned True + unsure

holds for every limit, where `own` is this process's use by the limiter's count.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import RLock
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from chaos.fleet.contestant import Contestant, Ours
from chaos.fleet.watchdog import Watchdog
from chaos.names import LIMIT_NAME
from reconverge import Agent
from reconverge.clock import SystemClock
from reconverge.kernel import Verdict
from reconverge_sync.memory import MemoryHub

if TYPE_CHECKING:
    from chaos.fleet.node import Node

TURN_S: Final = 0.25
"""The duration of the storm, in seconds, before the counts are recorded."""
ALARM_S: Final = 0.0006
"""The longest time until an alarm comes, in seconds: some fifty decisions are made meanwhile."""
VOLLEY: Final = 50
USER_SIGNAL_S: Final = 0.002
RAISE_SHARE: Final = 0.7
KEYS: Final = tuple(f"key-{number}" for number in range(20))
OTHER_THREADS: Final = 2
PAUSE_S: Final = 0.001
END_S: Final = 5.0
"""The longest time, in seconds, for which a runner may take to end, or to begin."""
RUNNER: Final = "reconverge"
"""The name of the thread that drives an agent."""
DECIDING, ALARMED, SIGNALLED = "deciding", "alarmed", "signalled"
EXTRA_LIMITS: Final = (
    ("plain", "1000000000/30 days", ""),
    ("joint", "1000000/30 days; 10000000/60 days", ""),
    ("log", "500/30 days", "sliding-log"),
    ("slices", "500/30 days", "sliding-slices"),
    ("window", "100000/30 days", "sliding-window"),
    ("bucket", "1000000/hour", "token-bucket"),
)
"""Limits with windows longer than any run, whose edges come so seldom that no run falls on one: their use never
ends."""
FADING: Final = ("bucket",)
"""The limits whose use fades, so that it cannot be compared with the admitted cost."""


class Interrupted(Exception):
    """Raised by a signal handler, at any moment."""


@dataclass
class Target:
    """A limit that is asked, and the counts of its decisions."""

    name: str
    decide: Callable[[str], int | None]
    """A function that returns the charged window, or None if the request was refused."""
    own: Callable[[], int] | None
    admitted: dict[str, Counter[int]] = field(default_factory=dict)
    """The admitted cost, by counter and by window: handlers nest, and an interrupted sum would lose what they add."""
    unsure: int = 0
    unsure_reported: int = 0
    total: int = 0

    def ask(self, who: str, key: str) -> None:
        """Decides and counts."""
        epoch = self.decide(key)
        if epoch is not None:
            self.admitted[who][epoch] += 1

    def take(self) -> Counter[int]:
        """Returns the cost admitted since the last call, by window."""
        taken: Counter[int] = Counter()
        for who in list(self.admitted):
            counted, self.admitted[who] = self.admitted[who], Counter()
            taken.update(counted)
        self.total += taken.total()
        return taken


class Storm:
    """The main thread of a node under a storm of signals."""

    def __init__(self, node: Node, contestant: Contestant) -> None:
        self._node = node
        self._contestant = contestant
        self._random = Random(f"storm {node.plan.seed} {node.plan.node}")
        self._watchdog = Watchdog(Path(node.plan.directory), node.plan.node)
        self._key = key = node.plan.requests[0].key
        self._targets = [Target(LIMIT_NAME, lambda _: _epoch(contestant.decide(key, 1)), None)]
        self._short = Target("short", lambda _: None, None)
        """Counts nothing; it is named if a decision of a short-lived agent is interrupted."""
        if isinstance(contestant, Ours):
            self._targets += _more_targets(contestant.agent)
        self._target = self._targets[0]
        self._armed = self._in_user_signal = self._entering = False
        self._lock = contestant.lock if isinstance(contestant, Ours) else RLock()
        """A lock for which no handler waits: its thread may be in a decision that the lock's owner waits for."""
        self._others = [_Other(self._targets, Random(number)) for number in range(OTHER_THREADS)]
        self._interrupted = self._turns = 0
        self._runners_most = self._runners_left = 0
        for target in self._targets:
            target.admitted = {who: Counter() for who in (DECIDING, ALARMED, SIGNALLED)}

    def live(self) -> None:
        """Decides under the storm until the load is over."""
        node = self._node
        kept = sys.unraisablehook
        sys.unraisablehook = lambda failure: None if isinstance(failure.exc_value, Interrupted) else kept(failure)
        end_ns = node.start_ns + node.plan.load_ns
        while time.monotonic_ns() < end_ns and not node.ended:
            begin_ns, wall_ns = time.monotonic_ns(), time.time_ns()
            self._turn()
            self._write_down(begin_ns, wall_ns)
            node.look()
            node.obey()
        self._watchdog.feed()
        sys.unraisablehook = kept
        node.more_facts = self._facts()
        self._watchdog.leave()

    # ---------------------------------------------------------------- one turn

    def _turn(self) -> None:
        self._turns += 1
        self._watchdog.feed()
        short_lived = Agent(MemoryHub(clock=SystemClock()), namespace="short", sync_interval=0.02)
        limiter = short_lived.limit("short", "1000000/hour")
        runners = _runners()
        for other in self._others:
            other.start()
        with _UserSignals(self._on_alarm, self._on_user_signal):
            end_s = time.monotonic() + TURN_S
            while time.monotonic() < end_s:
                self._target = self._random.choice(self._targets)
                self._volley(self._target, lambda: self._target.ask(DECIDING, self._random.choice(KEYS)))
                self._volley(self._short, lambda: limiter.allow("ada"))
        for other in self._others:
            other.stop()
        limiter.allow("ada")
        self._runners_most = max(self._runners_most, _runners() - runners)
        short_lived.stop()
        deadline_s = time.monotonic() + END_S
        while _runners() > runners and time.monotonic() < deadline_s:
            time.sleep(PAUSE_S)
        self._runners_left = max(self._runners_left, _runners() - runners)

    def _volley(self, target: Target, ask: Callable[[], object]) -> None:
        """Asks many times, with an alarm at some moment."""
        try:
            self._armed = True
            signal.setitimer(signal.ITIMER_REAL, self._random.random() * ALARM_S + 1e-6)
            try:
                for _ in range(VOLLEY):
                    ask()
            finally:
                self._armed = False
                signal.setitimer(signal.ITIMER_REAL, 0)
        except Interrupted:
            self._armed = False
            self._interrupted += 1
            target.unsure += 1
        time.sleep(PAUSE_S / 4)

    def _on_alarm(self, _number: int, _frame: FrameType | None) -> None:
        if self._entering or self._writes():
            return
        if self._lock.acquire(blocking=False):
            try:
                self._random_target().ask(ALARMED, self._random.choice(KEYS))
            finally:
                self._lock.release()
        if self._armed and self._random.random() < RAISE_SHARE:
            raise Interrupted

    def _on_user_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._in_user_signal or self._writes():
            return
        self._in_user_signal = self._entering = True
        target, free = self._random_target(), self._lock.acquire(blocking=False)
        try:
            self._entering = False  # an alarm that raised between the lock and here would leave it locked
            if free:
                target.ask(SIGNALLED, self._random.choice(KEYS))
        except Interrupted:
            target.unsure += 1
            raise
        finally:
            if free:
                self._lock.release()
            self._in_user_signal = False

    def _writes(self) -> bool:
        return isinstance(self._contestant, Ours) and self._contestant.writes

    def _random_target(self) -> Target:
        """Returns a target; often the one that is being decided."""
        return self._target if self._random.random() < 0.5 else self._random.choice(self._targets)

    # ---------------------------------------------------------------- what came of it

    def _write_down(self, begin_ns: int, wall_ns: int) -> None:
        window_ns = self._node.plan.limit.window_ns
        for target in self._targets:
            taken = target.take()
            for other in self._others:
                taken.update(other.take(target))
            if target.name != LIMIT_NAME:
                continue
            for epoch, cost in taken.items():
                verdict = Verdict(allowed=True, epoch=epoch, hub_ns=epoch * window_ns, known=True)
                self._node.recorder.decided(
                    self._contestant.name,
                    verdict,
                    key=self._key,
                    cost=cost,
                    t_ns=begin_ns,
                    took_ns=0,
                    wall_ns=wall_ns,
                )
            if target.unsure > target.unsure_reported:
                cost, target.unsure_reported = target.unsure - target.unsure_reported, target.unsure
                self._node.recorder.write("unsure", who=self._contestant.name, t=begin_ns, cost=cost)
            if taken:
                self._contestant.count(taken.total())

    def _facts(self) -> dict[str, Any]:
        targets = {
            target.name: {"admitted": target.total, "unsure": target.unsure, "own": target.own()}
            for target in self._targets
            if target.own is not None
        }
        return {
            "storm": {
                "turns": self._turns,
                "interrupted": self._interrupted,
                "runners_most": self._runners_most,
                "runners_left": self._runners_left,
                "targets": targets,
            }
        }


class _UserSignals:
    """Sends signals while it is entered: SIGUSR1 from another thread, and SIGALRM as timers are set."""

    def __init__(self, on_alarm: Any, on_user_signal: Any) -> None:
        self._handlers = {signal.SIGALRM: on_alarm, signal.SIGUSR1: on_user_signal}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._send, name="storm", daemon=True)

    def __enter__(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for number in self._handlers:
            signal.signal(number, lambda *_: None)  # one signal may still be under way

    def _send(self) -> None:
        while not self._over.wait(USER_SIGNAL_S):
            os.kill(os.getpid(), signal.SIGUSR1)


class _Other:
    """Another thread, which no signal interrupts. Its counts are exact."""

    def __init__(self, targets: list[Target], random: Random) -> None:
        self._targets = targets
        self._random = random
        self._admitted = {target.name: Counter[int]() for target in targets}
        self._over = threading.Event()
        self._thread = threading.Thread()

    def start(self) -> None:
        """Begins to decide."""
        self._over.clear()
        self._thread = threading.Thread(target=self._live, name="other", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops deciding. Waits for ever for a thread that stands still, which the watchdog sees."""
        self._over.set()
        self._thread.join()

    def take(self, target: Target) -> Counter[int]:
        """Returns the cost that this thread admitted since the last call; only when the thread is stopped."""
        taken, self._admitted[target.name] = self._admitted[target.name], Counter()
        target.total += taken.total()
        return taken

    def _live(self) -> None:
        while not self._over.wait(PAUSE_S):
            target = self._random.choice(self._targets)
            for _ in range(VOLLEY // 2):
                epoch = target.decide(self._random.choice(KEYS))
                if epoch is not None:
                    self._admitted[target.name][epoch] += 1


def _more_targets(agent: Agent) -> list[Target]:
    """Returns limits of other kinds, asked in the ways that applications use."""
    targets = []
    for number, (name, text, algorithm) in enumerate(EXTRA_LIMITS):
        limiter = agent.limit(name, text, algorithm=algorithm) if algorithm else agent.limit(name, text)

        def allow(key: str, limiter: Any = limiter) -> int | None:
            return 0 if limiter.allow(key) else None

        def hit(key: str, limiter: Any = limiter) -> int | None:
            return 0 if limiter.hit(key).allowed else None

        def own(limiter: Any = limiter) -> int:
            return sum(limiter.usage(key).own for key in KEYS)

        targets.append(Target(name, hit if number % 2 else allow, None if name in FADING else own))
    return targets


def _epoch(verdict: Verdict) -> int | None:
    return verdict.epoch if verdict.allowed else None


def _runners() -> int:
    return sum(thread.name.startswith(RUNNER) for thread in threading.enumerate())
