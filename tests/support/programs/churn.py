"""Makes, uses and drops objects over and over, and prints the rest: `python -m tests.support.programs.churn NAME`."""

from __future__ import annotations

import contextlib
import copy
import gc
import json
import pickle
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from reconverge import Agent, Limit, RateLimiter, ReconvergeError
from reconverge.clock import SECOND_NS, ManualClock
from reconverge.kernel.engine import Cell, Decision, Lock, Store
from reconverge.limit import ALGORITHMS, SMOOTH_WARMING_UP
from reconverge.limiter.control import LimitControl
from reconverge.limiter.waiting.waiters import ThreadWaker, waiting_at
from reconverge.policies import BALANCED
from reconverge.simulation.explore.node import START_S, SmallNode
from reconverge_sync.memory import MemoryHub
from tests.support.programs.churn_of_parts import OF_PARTS

FIRST = 200
"""The number of rounds before the first measurement, after which caches and pools have their full size."""
AGAIN = 1000
PAGE_BYTES = 4096
MISTAKES = (ReconvergeError, TypeError, ValueError, OverflowError, LookupError, RuntimeError, AttributeError)


def expect(*attempts: Callable[[], Any]) -> None:
    """Makes mistakes, each of which must raise an error."""
    for attempt in attempts:
        try:
            attempt()
        except MISTAKES:
            continue
        raise AssertionError("that was no mistake")


def limit_of(algorithm: str) -> Limit:
    return Limit(10, 60, algorithm=algorithm, warmup=5.0 if algorithm == SMOOTH_WARMING_UP else None)


def agents(number: int) -> None:
    """Makes agents with limits of all kinds, and asks each about a few keys."""
    agent = Agent("memory://", clock=ManualClock(START_S))
    for algorithm in ALGORITHMS:
        limiter = agent.limit(algorithm, limit_of(algorithm))
        for key in ("ada", "bob", f"key {number}"):
            limiter.allow(key, 2)
            limiter.hit(key)
    agent.limit("several", "10/minute; 100/hour").hit("ada")
    agent.limit("share", "3/minute", parent=agent.limit("whole", "10/minute")).hit("ada")


def many_keys() -> Callable[[int], None]:
    """Asks about keys that leave once they are not in use any more."""
    clock = ManualClock(START_S)
    limiter = Agent("memory://", clock=clock, max_keys=50).limit("limit", "10/second")

    def come(number: int) -> None:
        for key in range(10):
            limiter.allow(f"key {number} {key}", 3)
        clock.advance(1.0)

    return come


def nodes() -> Callable[[int], None]:
    """Asks a node with a hub about keys: they are reported, answered, and dropped."""
    clock = ManualClock(START_S)
    node, hub = SmallNode(clock), MemoryHub(clock=clock)
    kinds = ("fixed-window", "sliding-window", "token-bucket", "sliding-log")
    limiters = [RateLimiter(LimitControl(node.limit(limit_of(name), BALANCED, name))) for name in kinds]

    def live(number: int) -> None:
        for limiter in limiters:
            limiter.allow(f"key {number % 7}", 2)
            limiter.test("ada")
            limiter.reset(f"key {number % 5}")
        node.exchanges_with(hub, rounds=2)
        clock.advance_ns(SECOND_NS)

    return live


def quiet_keys() -> Callable[[int], None]:
    """Asks a node with a hub about keys once or twice; they are forgotten as they are, or dropped in the end."""
    clock = ManualClock(START_S)
    node, hub = SmallNode(clock), MemoryHub(clock=clock)
    limiter = RateLimiter(LimitControl(node.limit(limit_of("sliding-window"), BALANCED)))

    def live(number: int) -> None:
        for key in range(20):
            limiter.allow(f"key {number % 50} {key}", 1 + number * key % 9)
        for _ in range(3):
            node.exchanges_with(hub, rounds=2)
            clock.advance_ns(SECOND_NS)
        if number % 10 == 0:
            node.kernel.forget_everything()

    return live


def decisions() -> Callable[[int], None]:
    """Makes decisions, and uses all that they offer."""
    limiter = Agent("memory://", clock=ManualClock(START_S)).limit("limit", "10/minute")

    def decide(number: int) -> None:
        one, other = limiter.hit("ada"), limiter.hit(f"key {number % 9}", cost=2)
        assert {one, other, copy.copy(one), pickle.loads(pickle.dumps(other))} == {one, other}  # noqa: S301  # our data
        assert repr(one)
        made = Decision(True, 1, 2, 0.5, 0.25, 0.0, f"name {number}", over_quota=True)
        assert made.binding + made.binding
        made_of_all: Any = Decision
        expect(
            made_of_all,
            lambda: made_of_all("x", "y"),
            lambda: made_of_all(True, 1, 2, 0.0, 0.0, 0.0, "name", False, False, True, "too many"),
            lambda: setattr(made, "limit", 3),
            lambda: made < one,  # type: ignore[operator]
        )

    return decide


def reservations() -> Callable[[int], None]:
    """Makes reservations that are settled, spent, refunded or dropped."""
    agent = Agent("memory://", clock=ManualClock(START_S))
    limiters = [agent.limit(name, limit_of(name)) for name in ALGORITHMS]

    def reserve(number: int) -> None:
        for limiter in limiters:
            key = f"key {number % 7}"
            with limiter.reserve(key, 3, on_abandon="return") as reservation:
                reservation.spend(number % 5)
            limiter.reserve(key, 2).settle(number % 4)
            limiter.reserve(key, 0)
            limiter.refund(key, 5)
            limiter.reset(key)

    return reserve


def waiters() -> Callable[[int], None]:
    """Makes requests that begin to wait, and end."""
    limiter = Agent("memory://", clock=ManualClock(START_S)).limit("limit", "10/minute")
    limiter.allow("ada", 10)

    def wait(number: int) -> None:
        table = limiter.control.table
        steps = waiting_at(table).steps("ada", (1,), None, None, ThreadWaker())
        next(steps)
        steps.close()
        limiter.wait_blocking(f"key {number % 9}", timeout=0)

    return wait


def mistakes() -> Callable[[int], None]:
    """Makes all mistakes that callers can make."""
    agent = Agent("memory://", clock=ManualClock(START_S))
    plain = agent.limit("limit", "10/minute", costs={"GET": 2})
    limiters = [plain, agent.limit("paced", "10/minute", algorithm="leaky-bucket"), agent.limit("two", "1/s; 9/minute")]

    def err(number: int) -> None:
        calls: list[tuple[list[Any], dict[str, Any]]] = [
            ([], {}),
            ([f"{number}", 1, None, 4], {}),
            (["ada"], {"price": 3}),
            (["ada"], {"key": "bob"}),
            ([f"\x00{number}"], {}),
            ([f"{number}" * 999], {}),
            ([[number]], {}),
            (["ada", -number - 1], {}),
            (["ada", number + 1000], {}),
            (["ada", 10**40 + number], {}),
            (["ada", f"{number}"], {}),
            (["ada", 1, f"kind {number}"], {}),
            (["ada", 10**30, "GET"], {}),
            (["ada"], {"kind": f"kind {number}"}),
        ]
        for limiter in limiters:
            asking: tuple[Callable[..., Any], ...] = (limiter.allow, limiter.hit)
            expect(*(partial(ask, *given, **named) for ask in asking for given, named in calls))
            expect(partial(limiter.refund, "ada", 10**13 + number))

    return err


def failures() -> Callable[[int], None]:
    """Lets the dependencies of decisions fail: the clock, the waker of the exchanges, the hash."""
    clock = ManualClock(START_S)

    def broken(*_: object) -> Any:
        raise LookupError("broken")

    node = SmallNode(clock)
    limiter = RateLimiter(LimitControl(node.limit(limit_of("sliding-window"), BALANCED)))
    limiter.allow("ada")
    store_of: Any = Store

    def fail(number: int) -> None:
        for ask in (limiter.hit, limiter.allow):
            node.kernel.look_around(0)  # so that the decision takes the slow path
            node.kernel.wake = broken
            node.kernel.wake_wanted = node.kernel.after_unlock = True
            expect(partial(ask, f"key {number % 9}"))
            node.kernel.wake = lambda: None
        table = limiter.control.table
        table.now_ns, now_ns = broken, table.now_ns
        other = Agent("memory://", clock=_BrokenClock(clock)).limit("limit", "10/minute")
        _BrokenClock.works = False
        expect(lambda: other.hit("ada"), lambda: other.allow("ada"))
        _BrokenClock.works = True
        table.now_ns = now_ns
        with contextlib.suppress(TypeError):  # only the compiled store has a hash
            store = store_of(hash=broken)
            cell: Any = Cell("ada", table, table.kernel.shards[0], 0)
            expect(lambda: store.put(cell), lambda: store.drop(cell), lambda: store["ada"])

    return fail


class _BrokenClock:
    """A clock that fails on order."""

    works = True

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def monotonic_ns(self) -> int:
        if not self.works:
            raise LookupError("no time")
        return self._clock.monotonic_ns()

    def wall_ns(self) -> int:
        return self._clock.wall_ns()


def cells() -> Callable[[int], None]:
    """Uses cells and their attributes, and stores of them."""
    table = Agent("memory://").limit("limit", "10/minute").control.table
    shard = table.kernel.shards[0]
    make: Any = Cell

    def keep(number: int) -> None:
        store = Store()
        kept = [Cell(f"{number} {each}", table, shard, each) for each in range(20)]
        for cell in kept:
            store.put(cell)
            cell.level = (10**25 + number) * (-1) ** number
            cell.confirmed = (number, number + 1, 10**12 + number)
            cell.demand = number / 7
            assert (cell.level, cell.confirmed[0]) == ((10**25 + number) * (-1) ** number, number)
        for cell in kept[::2]:
            store.drop(cell)
        assert (10, 3) == (len(store.in_order()), len(store.pass_by(3)))
        assert set(store) == {cell.key for cell in kept[1::2]}
        if number % 2:
            store.start_over()
        kept[0].lows = kept[0].history = None
        expect(make, lambda: make(7, table, shard, 0), lambda: store["nobody"], lambda: kept[0].nothing)  # type: ignore[attr-defined]
        lock: Any = Lock(table.kernel)
        with lock:
            assert not lock.acquire(blocking=False)
            expect(lambda: lock.run(int), lambda: lock.run(int))
        expect(lock.release, lambda: Lock(1), lock.run, lambda: lock.run(int, "no number"))  # type: ignore[arg-type]

    return keep


ACTIVITIES: dict[str, Callable[[], Callable[[int], None]]] = {
    "agents": lambda: agents,
    "many keys": many_keys,
    "nodes": nodes,
    "quiet keys": quiet_keys,
    "decisions": decisions,
    "reservations": reservations,
    "waiters": waiters,
    "mistakes": mistakes,
    "failures": failures,
    "cells": cells,
    **OF_PARTS,
}


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def main(name: str) -> None:
    """Runs for a while. Prints how many more blocks and bytes are in use than before, and the number of rounds."""
    activity = ACTIVITIES[name]()
    for number in range(FIRST):
        activity(number)
    gc.collect()
    blocks, resident = sys.getallocatedblocks(), resident_bytes()
    for number in range(FIRST, FIRST + AGAIN):
        activity(number)
        if number % 100 == 0:
            gc.collect()
    gc.collect()
    print(json.dumps([sys.getallocatedblocks() - blocks, resident_bytes() - resident, AGAIN]))  # noqa: T201  # its answer


if __name__ == "__main__":
    main(sys.argv[1])
