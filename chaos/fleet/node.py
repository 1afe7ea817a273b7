"""A node's process, as all programs use it: its contestants, its recorder, and the orders that it receives.

Orders are `go`, `end`, and in between orders for things to do to itself: `jump` its wall clock, `stall` its loop, `hog`
the interpreter, `flood` itself with keys, let a `stranger` in, hear a `lie` from its hub, `ask` for one key many times.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from resource import RUSAGE_SELF, getrusage
from types import TracebackType
from typing import Any, Final

from chaos.fleet.contestant import Contestant, MovedClock, Ours
from chaos.fleet.plan import Plan, Request
from chaos.fleet.stranger import Stranger
from chaos.fleet.watch import Watch
from chaos.judge.history import Recorder, short
from chaos.names import MERGED, OURS
from chaos.rivals.roster import ON_BROKER, RIVALS
from reconverge.clock import MILLISECOND_NS, SECOND_NS
from reconverge.errors import CostExceedsQuota, InvalidKey
from reconverge.kernel import Verdict

LOOK_NS: Final = 50 * MILLISECOND_NS
"""The time, in nanoseconds, between two records of a node's state."""
ASK_PAUSE_S: Final = 0.003
"""The seconds between requests for one key; many exchanges are made until they are over."""
LATE_NS: Final = 20 * MILLISECOND_NS
"""A delay, in nanoseconds, is recorded if it is longer than this."""
SCHEDULED: Final = Path("/proc/thread-self/schedstat")
NAP_S: Final = 0.02
READY_S: Final = 30.0
EAGER_MAX: Final = 5
"""The number of contestants that try again at once, and are recorded: so many are enough to show it."""


def held_up_ns() -> int:
    """Returns how long this thread has been ready to run while others had the processors; 0 if nothing counts it."""
    try:
        return int(SCHEDULED.read_text().split()[1])
    except (OSError, IndexError):
        return 0


class Node:
    """The common part of all kinds of processes."""

    def __init__(self, plan: Plan, *, decides: bool = True) -> None:
        """With `decides` False, this process decides nothing, and only asks other processes."""
        self.plan = plan
        self.recorder = Recorder(Path(plan.directory), plan.node)
        self.watch = Watch()
        self.clock = MovedClock()
        self.start_ns = 0
        self.more_facts: dict[str, Any] = {}
        self._go = threading.Event()
        self._end = threading.Event()
        self._orders: SimpleQueue[tuple[str, float]] = SimpleQueue()
        self._looked_ns = 0
        self._observing = False
        self._keys_most: dict[str, int] = {}
        self._keys = sorted({request.key for request in plan.requests if usable(request.key)})
        self._listen_to_failures()
        # It is registered before any contestant exists, so that their own last words come first.
        atexit.register(self._say_what_became_of_it)
        self.teams = {name: self._team(name) for name in plan.contestants if decides}
        self._strangers = {one.name: Stranger(one, plan.node, len(plan.flooded)) for one in self.contestants}
        self._deeds: dict[str, Callable[[float], None]] = {
            "observe": self._observe,
            "jump": self._jump,
            "flood": self._flood,
            "stall": time.sleep,
            "hog": _hog,
            "stranger": self._let_in,
            "lie": self._be_lied_to,
            "ask": self._ask_again_and_again,
        }

    @property
    def contestants(self) -> list[Contestant]:
        """Returns the first member of each team; in most programs, a team has only one."""
        return [team[0] for team in self.teams.values()]

    # ---------------------------------------------------------------- beginning and end

    def prepare(self) -> None:
        """Makes all contestants begin."""
        for team in self.teams.values():
            for contestant in team:
                contestant.prepare(self._keys)

    def await_readiness(self) -> None:
        """Waits until all contestants are ready, or until the wait is so long that there must be a fault."""
        deadline_s = time.monotonic() + READY_S
        while not self.ready and time.monotonic() < deadline_s:
            time.sleep(NAP_S)

    @property
    def ready(self) -> bool:
        """Returns whether all contestants are ready."""
        return all(contestant.ready for team in self.teams.values() for contestant in team)

    def say_ready(self) -> None:
        """Reports to the parent process that this process is ready."""
        self.recorder.write("born", t=time.monotonic_ns())
        (Path(self.plan.directory) / f"ready-{self.plan.node}.{os.getpid()}").touch()

    def listen(self) -> None:
        """Receives the orders to this process, on a thread of its own."""
        threading.Thread(target=self._hear, name="orders", daemon=True).start()

    def await_go(self) -> None:
        """Waits for the common start."""
        self._go.wait()

    @property
    def is_started(self) -> bool:
        """Returns whether the common start is known."""
        return self._go.is_set()

    @property
    def ended(self) -> bool:
        """Returns whether the process was ordered to end."""
        return self._end.is_set()

    def due_requests(self) -> list[Request]:
        """Returns the requests that are still to come: a process that replaces another one begins now."""
        passed_ns = time.monotonic_ns() - self.start_ns
        return [request for request in self.plan.requests if request.moment_ns >= passed_ns]

    # ---------------------------------------------------------------- waiting, without waiting too long

    def nap_s(self, moment_ns: int) -> float:
        """Returns the seconds to sleep until that moment; at most NAP_S, as there may be an order to obey."""
        left_s = (self.start_ns + moment_ns - time.monotonic_ns()) / SECOND_NS
        return min(max(0.0, left_s), NAP_S)

    def slept(self, until_ns: int) -> None:
        """Obeys orders and records the state, after a nap."""
        late_ns = time.monotonic_ns() - until_ns
        if late_ns > LATE_NS:
            self.recorder.write("late", t=time.monotonic_ns(), ns=late_ns)
        self.look()
        self.obey()

    def wait_until(self, moment_ns: int) -> bool:
        """Waits until a time after the start. Returns whether that is still part of the load."""
        while (nap_s := self.nap_s(moment_ns)) > 0 and not self.ended:
            until_ns = time.monotonic_ns() + int(nap_s * SECOND_NS)
            time.sleep(nap_s)
            self.slept(until_ns)
        return not self.ended and time.monotonic_ns() < self.start_ns + self.plan.load_ns

    def wait_for_the_end(self) -> None:
        """Waits for the order to end, without further requests."""
        while not self.ended:
            until_ns = time.monotonic_ns() + int(NAP_S * SECOND_NS)
            time.sleep(NAP_S)
            self.slept(until_ns)

    # ---------------------------------------------------------------- what is done

    def ask(self, request: Request, *, number: int = 0) -> None:
        """Makes one member of every team decide a request, and records the decisions."""
        for team in self.teams.values():
            self.ask_one(team[number % len(team)], request)

    def ask_one(self, contestant: Contestant, request: Request) -> bool:
        """Makes a contestant decide a request, and records the decision. Returns whether it was admitted."""
        verdict = None
        wall_ns = time.time_ns()
        self.watch.begin()
        t_ns = time.monotonic_ns()
        try:
            verdict = contestant.decide(request.key, request.cost)
        except (CostExceedsQuota, InvalidKey):
            pass  # the caller's mistake, and recorded as one
        except Exception as error:  # noqa: BLE001  # any exception that escapes is to be reported
            self._escaped(contestant.name, error)
        took_ns = time.monotonic_ns() - t_ns
        touched = self.watch.end()
        if verdict is None:
            return False
        self._decided(contestant, request, verdict, t_ns=t_ns, took_ns=took_ns, wall_ns=wall_ns, touched=touched)
        return verdict.allowed

    async def ask_and_wait(self, contestant: Contestant, request: Request) -> None:
        """Makes a contestant decide a request that may ask the hub; records the decision, and whether it waited."""
        verdict = None
        suspended: list[None] = []
        held_ns, wall_ns, t_ns = held_up_ns(), time.time_ns(), time.monotonic_ns()
        # It runs only if this task lets other tasks of its loop run.
        handle = asyncio.get_running_loop().call_soon(suspended.append, None)
        try:
            verdict = await contestant.ask(request.key, request.cost)
        except Exception as error:  # noqa: BLE001  # any exception that escapes is to be reported
            self._escaped(contestant.name, error)
        how = {"t_ns": t_ns, "took_ns": time.monotonic_ns() - t_ns, "wall_ns": wall_ns, "waited": bool(suspended)}
        handle.cancel()
        if verdict is not None:
            self._decided(contestant, request, verdict, held_ns=held_up_ns() - held_ns, **how)

    def _decided(self, contestant: Contestant, request: Request, verdict: Verdict, **how: Any) -> None:
        """Counts the admitted cost, and records the decision."""
        if verdict.allowed:
            contestant.count(request.cost)
        self.recorder.decided(contestant.name, verdict, key=request.key, cost=request.cost, **how)

    def look(self, *, at_once: bool = False) -> None:
        """Records the state of all contestants, from time to time."""
        now_ns = time.monotonic_ns()
        if not at_once and now_ns - self._looked_ns < LOOK_NS:
            return
        self._looked_ns = now_ns
        if self._observing:
            self._ask_what_was_used()
        for contestant in self.contestants:
            keys: int = contestant.facts()["keys"]
            self._keys_most[contestant.name] = max(self._keys_most.get(contestant.name, 0), keys)
        views = [(one.name, time.monotonic_ns(), one.view(), one.staleness_s()) for one in self.contestants]
        for name, t_ns, total, staleness_s in views:
            self.recorder.write("view", who=name, t=t_ns, total=total, staleness_s=staleness_s)
        for one in self.contestants:
            self.recorder.write("health", who=one.name, t=time.monotonic_ns(), state=one.health())
        if self.plan.shards > 1:
            for one in self.contestants:
                self.recorder.write("ages", who=one.name, t=time.monotonic_ns(), by_shard=one.ages_s())

    def _ask_what_was_used(self) -> None:
        for contestant in self.contestants:
            for key in self._keys:
                used = contestant.used(key)
                if used is None:
                    continue
                epoch, total = used
                facts = {"key": short(key), "epoch": epoch, "total": total}
                self.recorder.write("asked", who=contestant.name, t=time.monotonic_ns(), **facts)

    def obey(self) -> None:
        """Obeys the orders for things to do to itself."""
        while True:
            try:
                what, amount = self._orders.get_nowait()
            except Empty:
                return
            self.recorder.write("ordered", t=time.monotonic_ns(), what=what)
            self._deeds[what](amount)
            # First of all, as a thread that waits to run will exchange as soon as this one does any input or output.
            self.look(at_once=True)
            self.recorder.write("ordered", t=time.monotonic_ns(), what=f"{what} over")

    def _jump(self, seconds: float) -> None:
        """Makes the wall clock jump by `seconds`."""
        self.clock.ahead_ns += round(seconds * SECOND_NS)

    def _observe(self, _amount: float) -> None:
        """Records the use of windows from now on."""
        self._observing = True

    def _let_in(self, keys_per_s: float) -> None:
        """Lets a stranger ask about many distinct keys per second."""
        for stranger in self._strangers.values():
            stranger.flood(int(keys_per_s))

    def _be_lied_to(self, lies: float) -> None:
        for contestant in self.contestants:
            contestant.lie(lies=bool(lies))

    def _ask_again_and_again(self, requests: float) -> None:
        """Asks many times for the first key, one request after the other."""
        for _ in range(int(requests)):
            self.ask(Request(0, self._keys[0], 1))
            time.sleep(ASK_PAUSE_S)
            self.look()

    def _flood(self, amount: float) -> None:
        """Asks about many new keys."""
        keys = int(amount)
        for contestant in self.contestants:
            t_ns, wall_ns, admitted, verdict = time.monotonic_ns(), time.time_ns(), 0, None
            for number in range(keys):
                verdict = contestant.decide(f"flood-{number}", 1)
                if verdict.allowed:
                    admitted += 1
                    contestant.count(1)  # at once: an unused count may be forgotten while a flood lasts
            if verdict is not None and admitted:
                self.recorder.decided(
                    contestant.name,
                    verdict._replace(allowed=True),
                    key="flood",
                    cost=admitted,
                    t_ns=t_ns,
                    took_ns=0,
                    wall_ns=wall_ns,
                    summed=True,
                )

    # ---------------------------------------------------------------- inside

    def _team(self, name: str) -> list[Contestant]:
        if name in (OURS, MERGED):
            return [Ours(name, self.plan, self.recorder, self.clock) for _ in range(self.plan.agents)]
        members = min(self.plan.agents, EAGER_MAX)
        rivals = ON_BROKER if self.plan.rivals_url.startswith("mqtt") else RIVALS
        return [rivals[name](name, self.plan, self.recorder, self.clock) for _ in range(members)]

    def _hear(self) -> None:
        for line in sys.stdin:
            order = json.loads(line)
            if order["do"] == "go":
                self.start_ns = order["start_ns"]
                self._go.set()
            elif order["do"] == "end":
                self._end.set()
            else:
                self._orders.put((order["do"], order["amount"]))
        if not self.ended:
            os._exit(1)  # the process that gave the orders has ended

    def _listen_to_failures(self) -> None:
        def in_thread(failure: threading.ExceptHookArgs) -> None:
            name = failure.thread.name if failure.thread is not None else ""
            self._escaped(name, failure.exc_value)

        def in_main(_kind: type[BaseException], error: BaseException, _trace: TracebackType | None) -> None:
            self._escaped("", error)

        threading.excepthook = in_thread
        sys.excepthook = in_main
        sys.unraisablehook = lambda failure: self._escaped("", failure.exc_value)

    def note_in_loop(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Records an exception that nothing in an event loop has caught."""
        self._escaped("", context.get("exception") or RuntimeError(context["message"]))

    def _escaped(self, name: str, error: BaseException | None) -> None:
        logging.getLogger("chaos").error("escaped", exc_info=error)
        who = {"who": name} if name in self.plan.contestants else {}
        self.recorder.write("escaped", t=time.monotonic_ns(), what=f"{type(error).__name__}: {error}"[:200], **who)

    def _say_what_became_of_it(self) -> None:
        facts = {"rss_kb": getrusage(RUSAGE_SELF).ru_maxrss, **self.more_facts}
        for name, team in self.teams.items():
            if isinstance(team[0], Ours):
                logging.getLogger("chaos").info("%r %r", vars(team[0]), vars(team[0].agent))
            own = team[0].facts()
            own["keys"] = max(own["keys"], self._keys_most.get(name, 0))
            own |= self._strangers[name].facts
            self.recorder.write("end", who=name, t=time.monotonic_ns(), facts={**own, **facts})


def usable(key: str) -> bool:
    """Returns whether a key is valid."""
    try:
        return 0 < len(key.encode()) <= 256 and not key.startswith("\x00")
    except UnicodeEncodeError:
        return False


def _hog(seconds: float) -> None:
    """Keeps the interpreter, in one call that never lets go of it."""
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))
