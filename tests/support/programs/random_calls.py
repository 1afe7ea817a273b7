"""Random calls on the compiled kernel, with disturbances of all kinds.

`python -m tests.support.programs.random_calls CALLS` makes that many. There are keys and costs of all types, subclasses
of `str` whose methods ask again, finalizers, callbacks of the collector and a signal handler that ask as well, on
several threads. Nothing may crash, hang or raise an undocumented error; and no key that only the true keys' calls touch
may be admitted beyond its quota.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable
from random import Random
from typing import Any, Final

from reconverge import Agent, Limit, RateLimiter, ReconvergeError

EXPECTED: Final = (ReconvergeError, TypeError, ValueError, OverflowError)
THREADS: Final = 4
MANY_THREADS: Final = 8
"""The number of threads in every fourth lot."""
LIMITS: Final[dict[str, dict[str, Any]]] = {
    "fixed-window": {"limit": Limit(50, 0.05, algorithm="fixed-window")},
    "sliding-window": {"limit": Limit(50, 0.05)},
    "token-bucket": {"limit": Limit(50, 0.05, algorithm="token-bucket")},
    "sliding-log": {"limit": Limit(20, 0.05, algorithm="sliding-log")},
    "sliding-slices": {"limit": Limit(20, 0.05, algorithm="sliding-slices")},
    "several": {"limit": "50/second; 1000/minute"},
    "huge": {"limit": Limit(10**12, 10**6, algorithm="token-bucket")},
}


class Asker:
    """The limits of a few agents, and random calls on them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        agents = [
            Agent("memory://", max_keys=64),
            Agent(f"memory://random-calls-{seed}", sync_interval=0.01, max_keys=64),
            Agent(f"memory://random-calls-{seed}", sync_interval=0.01, max_keys=64, policy="strict"),
        ]
        self.agents = agents
        self.limiters: list[RateLimiter] = [
            agent.limit(f"{number}-{name}", **terms)
            for number, agent in enumerate(agents)
            for name, terms in LIMITS.items()
        ]
        self.strict = Agent("memory://").limit("bounded", Limit(1000, 10**6))
        self.admitted = 0
        self.calls = 0
        self.unexpected: list[BaseException] = []

    def again(self) -> None:
        """Makes a call in the middle of another one."""
        limiter = self.random.choice(self.limiters)
        self.random.choice(CALLS)(limiter, f"key {self.random.randrange(80)}", 1, self.random)

    def key(self, random: Random) -> Any:
        kind = random.randrange(12)
        text = f"key {random.randrange(80)}"
        odd: list[Any] = [Nasty(text), None, b"bytes", 7, 1.5, "", "\x00nul", "\ud800", "\u6261" * 90, ("a", "tuple")]
        return text if kind < 8 else odd[random.randrange(len(odd))]

    def cost(self, random: Random) -> Any:
        odd: list[Any] = [0, 2, 7, -1, True, 1.0, None, "1", 2**31, 2**63, 2**64 + 1, 10**40, OddNumber(3)]
        return 1 if random.random() < 0.7 else random.choice(odd)

    def call(self, random: Random) -> None:
        """Makes one random call; only documented errors may come out of it."""
        self.calls += 1
        if random.random() < 0.05:
            Rubbish(self)
        if random.random() < 0.05:
            self.admitted += self.strict.allow("bounded")
        try:
            random.choice(CALLS)(random.choice(self.limiters), self.key(random), self.cost(random), random)
        except EXPECTED:
            return

    def run(self, calls: int, seed: int) -> None:
        random = Random(seed)
        try:
            for _ in range(calls):
                self.call(random)
        except BaseException as error:  # noqa: BLE001  # the main thread reports it
            self.unexpected.append(error)


ASKER: list[Asker] = []


def ask_again() -> None:
    """Calls again, as odd types, finalizers and callbacks do."""
    if ASKER and not getattr(BUSY, "now", False):
        BUSY.now = True
        try:
            ASKER[0].again()
        except EXPECTED:
            return
        finally:
            BUSY.now = False


BUSY: Final = threading.local()


class Nasty(str):
    """A string that asks a limit at each access."""

    __slots__ = ()

    def __hash__(self) -> int:
        ask_again()
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        ask_again()
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __repr__(self) -> str:
        ask_again()
        return super().__repr__()

    def __len__(self) -> int:
        ask_again()
        return super().__len__()


class OddNumber(int):
    """A number that asks a limit at each calculation."""

    def __mul__(self, other: int) -> int:
        ask_again()
        return super().__mul__(other)

    __index__ = __int__ = lambda self: 3


class Rubbish:
    """An object in a circle, which asks a limit when it is collected."""

    def __init__(self, asker: Asker) -> None:
        self.me, self.asker = self, asker

    def __del__(self) -> None:
        ask_again()


def _keeps(limiter: RateLimiter, key: Any, cost: Any, random: Random) -> None:
    reservation = limiter.reserve(key, cost)
    reservation.spend(random.randrange(3))
    reservation.settle(random.randrange(5))


CALLS: Final[list[Callable[[RateLimiter, Any, Any, Random], object]]] = [
    *[lambda limiter, key, cost, random: limiter.allow(key, cost)] * 4,
    *[lambda limiter, key, cost, random: limiter.hit(key, cost)] * 3,
    lambda limiter, key, cost, random: limiter.allow(key, kind=key),
    lambda limiter, key, cost, random: limiter.allow_many([key, "another", key], [cost, 1, 1]),
    lambda limiter, key, cost, random: limiter.allow_many([f"key {random.randrange(80)}" for _ in range(40)]),
    lambda limiter, key, cost, random: limiter.test(key, cost),
    lambda limiter, key, cost, random: limiter.usage(key),
    lambda limiter, key, cost, random: limiter.refund(key, cost),
    lambda limiter, key, cost, random: limiter.reset(key),
    lambda limiter, key, cost, random: limiter.warm([key]),
    lambda limiter, key, cost, random: limiter.wait_blocking(key, cost, timeout=0),
    lambda limiter, key, cost, random: limiter.control.tables[0].cells.get(key),
    lambda limiter, key, cost, random: limiter.control.tables[0].cells.in_order(),
    lambda limiter, key, cost, random: repr(limiter.hit(key, cost)),
    _keeps,
]


def random_calls(calls: int, seed: int, *, threads: int = THREADS) -> Asker:
    """Makes calls on several threads, while signals and collections come. Raises each undocumented error."""
    asker = Asker(seed)
    ASKER[:] = [asker]
    callback: Callable[[str, dict[str, int]], None] = lambda *_: ask_again()  # noqa: E731
    gc.freeze()  # what is there already is not gone through again and again
    before, handler = gc.get_threshold(), signal.getsignal(signal.SIGALRM)
    signal.signal(signal.SIGALRM, lambda *_: ask_again())
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    gc.callbacks.append(callback)
    gc.set_threshold(50)
    others = [
        threading.Thread(target=asker.run, args=(calls // threads, seed + number), daemon=True)
        for number in range(1, threads)
    ]
    try:
        for thread in others:
            thread.start()
        asker.run(calls // threads, seed)
        for thread in others:
            thread.join()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        gc.set_threshold(*before)
        gc.callbacks.remove(callback)
        gc.unfreeze()
        ASKER.clear()
        for agent in asker.agents:
            agent.stop()
    for error in asker.unexpected:
        raise error
    assert asker.admitted <= 1000, asker.admitted
    for limiter in asker.limiters:
        for table in limiter.control.tables:
            assert not table.lock.locked(), limiter
    return asker


def main(calls: int) -> None:
    """Makes calls in lots, each with limits of its own, and prints the progress."""
    done = lots = 0
    while done < calls:
        lot = min(10_000, calls - done)
        threads = MANY_THREADS if lots % 4 == 3 else THREADS
        done += random_calls(lot, 10 * lots, threads=threads).calls
        lots += 1
        sys.stdout.write(f"{done} calls, 0 faults\n")
        sys.stdout.flush()


if __name__ == "__main__":
    os.environ.setdefault("PYTHONFAULTHANDLER", "1")
    main(int(sys.argv[1]))
