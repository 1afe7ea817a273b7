"""A node's process, as all its programs know it: its contestants, its recorder, and the orders that it hears.

Orders are `go`, `end`, and in between things to do to itself: `jump` its wall clock, `stall` its loop, `hog` the
interpreter, `flood` itself with keys, let a `stranger` in, hear a `lie` from its hub, `ask` for one key many times.
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
"""How often a node writes down what it knows."""
ASK_PAUSE_S: Final = 0.003
"""Between requests for one key; many exchanges are made until they are over."""
LATE_NS: Final = 20 * MILLISECOND_NS
"""Later than that is worth writing down."""
SCHEDULED: Final = Path("/proc/thread-self/schedstat")
NAP_S: Final = 0.02
READY_S: Final = 30.0
EAGER_MAX: Final = 5
"""So many of those who try again at once are enough to see it."""


def held_up_ns() -> int:
    """For how long this thread was ready to run in its life while others had the processors; 0 where nobody counts."""
    try:
        return int(SCHEDULED.read_text().split()[1])
    except (OSError, IndexError):
        return 0


class Node:
    """What all kinds of processes have in common."""

    def __init__(self, plan: Plan, *, decides: bool = True) -> None:
        """Without `decides` this process only asks others."""
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
        # Before there is any contestant, whose own last words are said first then.
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
        """The first of each team, which is all of it in most programs."""
        return [team[0] for team in self.teams.values()]

    # ---------------------------------------------------------------- beginning and end

    def prepare(self) -> None:
        """Have everybody begin."""
        for team in self.teams.values():
            for contestant in team:
                contestant.prepare(self._keys)

    def await_readiness(self) -> None:
        """Wait until everybody has heard what there is to hear, or for so long that there is something wrong."""
        deadline_s = time.monotonic() + READY_S
        while not self.ready and time.monotonic() < deadline_s:
            time.sleep(NAP_S)

    @property
    def ready(self) -> bool:
        """Whether everybody is."""
        return all(contestant.ready for team in self.teams.values() for contestant in team)

    def say_ready(self) -> None:
        """Tell whoever started this process."""
        self.recorder.write("born", t=time.monotonic_ns())
        (Path(self.plan.directory) / f"ready-{self.plan.node}.{os.getpid()}").touch()

    def listen(self) -> None:
        """Hears the orders to this process, on a thread of its own."""
        threading.Thread(target=self._hear, name="orders", daemon=True).start()

    def await_go(self) -> None:
        """Wait for the common start."""
        self._go.wait()

    @property
    def is_started(self) -> bool:
        """Whether the common start is known."""
        return self._go.is_set()

    @property
    def ended(self) -> bool:
        """Whether it was ordered to end."""
        return self._end.is_set()

    def due_requests(self) -> list[Request]:
        """Those that are still to come: a process that replaces another begins where it is."""
        passed_ns = time.monotonic_ns() - self.start_ns
        return [request for request in self.plan.requests if request.moment_ns >= passed_ns]

    # ---------------------------------------------------------------- waiting, without waiting too long

    def nap_s(self, moment_ns: int) -> float:
        """How long to sleep until then; not for long, as there may be something else to do."""
        left_s = (self.start_ns + moment_ns - time.monotonic_ns()) / SECOND_NS
        return min(max(0.0, left_s), NAP_S)

    def slept(self, until_ns: int) -> None:
        """A nap is over: see to what else there is to do."""
        late_ns = time.monotonic_ns() - until_ns
        if late_ns > LATE_NS:
            self.recorder.write("late", t=time.monotonic_ns(), ns=late_ns)
        self.look()
        self.obey()

    def wait_until(self, moment_ns: int) -> bool:
        """Wait until so long after the start. Returns whether that is still part of the load."""
        while (nap_s := self.nap_s(moment_ns)) > 0 and not self.ended:
            until_ns = time.monotonic_ns() + int(nap_s * SECOND_NS)
            time.sleep(nap_s)
            self.slept(until_ns)
        return not self.ended and time.monotonic_ns() < self.start_ns + self.plan.load_ns

    def wait_for_the_end(self) -> None:
        """Nothing is asked any more."""
        while not self.ended:
            until_ns = time.monotonic_ns() + int(NAP_S * SECOND_NS)
            time.sleep(NAP_S)
            self.slept(until_ns)

    # ---------------------------------------------------------------- what is done

    def ask(self, request: Request, *, number: int = 0) -> None:
        """Have a request decided by every team, each by one of its members, and write down how."""
        for team in self.teams.values():
            self.ask_one(team[number % len(team)], request)

    def ask_one(self, contestant: Contestant, request: Request) -> bool:
        """Have a request decided, and write down how. Returns whether it was admitted."""
        verdict = None
        wall_ns = time.time_ns()
        self.watch.begin()
        t_ns = time.monotonic_ns()
        try:
            verdict = contestant.decide(request.key, request.cost)
        except (CostExceedsQuota, InvalidKey):
            pass  # the caller's mistake, and said to be one
        except Exception as error:  # noqa: BLE001  # any exception that escapes is to be reported
            self._escaped(contestant.name, error)
        took_ns = time.monotonic_ns() - t_ns
        touched = self.watch.end()
        if verdict is None:
            return False
        self._decided(contestant, request, verdict, t_ns=t_ns, took_ns=took_ns, wall_ns=wall_ns, touched=touched)
        return verdict.allowed

    async def ask_and_wait(self, contestant: Contestant, request: Request) -> None:
        """Have a request decided that may ask the hub, and write down how, and whether it waited."""
        verdict = None
        suspended: list[None] = []
        held_ns, wall_ns, t_ns = held_up_ns(), time.time_ns(), time.monotonic_ns()
        # Runs only if this task lets others of its loop run.
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
        """Count what was admitted, and write down how it was decided."""
        if verdict.allowed:
            contestant.count(request.cost)
        self.recorder.decided(contestant.name, verdict, key=request.key, cost=request.cost, **how)

    def look(self, *, at_once: bool = False) -> None:
        """Write down what everybody knows, from time to time."""
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
        """Obeys the orders to do something to itself."""
        while True:
            try:
                what, amount = self._orders.get_nowait()
            except Empty:
                return
            self.recorder.write("ordered", t=time.monotonic_ns(), what=what)
            self._deeds[what](amount)
            # First of all, as whoever waited to run will exchange as soon as we do any input or output.
            self.look(at_once=True)
            self.recorder.write("ordered", t=time.monotonic_ns(), what=f"{what} over")

    def _jump(self, seconds: float) -> None:
        """Have the wall clock be so much further ahead."""
        self.clock.ahead_ns += round(seconds * SECOND_NS)

    def _observe(self, _amount: float) -> None:
        """From now on write down what was used."""
        self._observing = True

    def _let_in(self, keys_per_s: float) -> None:
        """Have a stranger ask about so many distinct keys per second."""
        for stranger in self._strangers.values():
            stranger.flood(int(keys_per_s))

    def _be_lied_to(self, lies: float) -> None:
        for contestant in self.contestants:
            contestant.lie(lies=bool(lies))

    def _ask_again_and_again(self, requests: float) -> None:
        """Ask so many times for the first key, one after the other."""
        for _ in range(int(requests)):
            self.ask(Request(0, self._keys[0], 1))
            time.sleep(ASK_PAUSE_S)
            self.look()

    def _flood(self, amount: float) -> None:
        """Ask about so many keys that nobody has heard of."""
        keys = int(amount)
        for contestant in self.contestants:
            t_ns, wall_ns, admitted, verdict = time.monotonic_ns(), time.time_ns(), 0, None
            for number in range(keys):
                verdict = contestant.decide(f"flood-{number}", 1)
                if verdict.allowed:
                    admitted += 1
                    contestant.count(1)  # at once: a count that is not used while a flood lasts may be forgotten
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
            os._exit(1)  # whoever gave the orders is gone

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
        """What an event loop does with an exception that nobody has caught."""
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
    """Whether it is a key that can be counted under."""
    try:
        return 0 < len(key.encode()) <= 256 and not key.startswith("\x00")
    except UnicodeEncodeError:
        return False


def _hog(seconds: float) -> None:
    """Keep the interpreter to ourselves, in one call that never lets go of it."""
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))
