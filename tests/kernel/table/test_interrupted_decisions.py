"""Decisions that are interrupted at any instruction, by a decision or by an exception."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Final

import pytest

from reconverge import RateLimiter
from reconverge.clock import SECOND_NS, ManualClock
from reconverge.decision import Decision
from reconverge.kernel import COMPILED, Kernel
from reconverge.limit import Limit
from reconverge.limiter.control import LimitControl
from reconverge.policies import BALANCED
from reconverge.settings import MILLION
from reconverge.simulation.explore.node import START_S, SmallNode
from reconverge_sync.memory import MemoryHub
from tests.support.effort import tried
from tests.support.opcodes import Interrupted, interrupted_at, raise_interrupted

pytestmark = pytest.mark.slow

QUOTA: Final = 12
WINDOW_S: Final = 60
EVERY: Final = int(os.environ.get("EVERY_INSTRUCTION", tried(53, long=23) if COMPILED else 97))
"""One of so many instructions is interrupted, of which there are more without the compiled kernel.

With 1 in the environment all are, which takes twenty minutes.
"""

SHORT: Final = ("refund", "reset")
"""These are interrupted more often by an exception: they are short, and most easily left halfway."""
EVERY_OF_SHORT: Final = min(EVERY, tried(5, long=1) if COMPILED else EVERY)
"""The first of the instructions differs from test to test, so that together they come to all that the limits share."""

LIMITS: Final[dict[str, dict[str, Limit]]] = {
    "fixed-window": {"a": Limit(QUOTA, WINDOW_S, algorithm="fixed-window")},
    "sliding-window": {"a": Limit(QUOTA, WINDOW_S)},
    "token-bucket": {"a": Limit(QUOTA, WINDOW_S, algorithm="token-bucket")},
    "interval": {"a": Limit(QUOTA, WINDOW_S, algorithm="token-bucket", refill="interval")},
    "sliding-slices": {"a": Limit(QUOTA, WINDOW_S, algorithm="sliding-slices")},
    "sliding-log": {"a": Limit(QUOTA, WINDOW_S, algorithm="sliding-log")},
    "leaky-bucket": {"a": Limit(QUOTA, WINDOW_S, algorithm="leaky-bucket")},
    "first-hit": {"a": Limit(QUOTA, WINDOW_S, algorithm="fixed-window", align="first-hit")},
    "several": {"a": Limit(QUOTA, WINDOW_S), "b": Limit(10 * QUOTA, 60 * WINDOW_S, algorithm="sliding-log")},
}


def reserves(limiter: RateLimiter, key: str) -> None:
    """Charge two, and give one of them back."""
    with limiter.reserve(key, 2) as reservation:
        reservation.settle(1)


def waits(limiter: RateLimiter, key: str) -> None:
    """Ask as somebody who would wait."""
    limiter.wait_blocking(key, timeout=0)


ASKING: Final[dict[str, Callable[[RateLimiter, str], object]]] = {
    "allow": lambda limiter, key: limiter.allow(key),
    "hit": lambda limiter, key: limiter.hit(key),
    "allow_many": lambda limiter, key: limiter.allow_many([key, "another"]),
    "reserve": reserves,
    "refund": lambda limiter, key: limiter.refund(key),
    "reset": lambda limiter, key: limiter.reset(key),
    "test": lambda limiter, key: limiter.test(key),
    "usage": lambda limiter, key: limiter.usage(key),
    "wait": waits,
}
LOST_MAX: Final = 4
"""A charge that did not return is not given back: two by a reservation. Between two assignments, where only a tracer
raises, it may count twice."""


class InterruptedNode:
    """A node with a limit, alone or with a hub that no other node asks."""

    def __init__(self, kind: str, *, alone: bool) -> None:
        self.clock = ManualClock(START_S)
        self.hub = MemoryHub(clock=self.clock)
        self.node = SmallNode(self.clock, keys_max=MILLION)
        kernel = self.node.kernel
        if alone:
            kernel = Kernel(
                self.clock,
                namespace="test",
                interval_ns=SECOND_NS,
                interval_min_ns=SECOND_NS // 10,
                keys_max=MILLION,
                key_bytes_max=256,
                alone=True,
            )
        self.alone = alone
        self.limiter = RateLimiter(
            LimitControl(kernel.composites.declare("a" if len(LIMITS[kind]) == 1 else "both", LIMITS[kind], BALANCED))
        )
        self.woken = 0
        kernel.wake = self.wake

    def wake(self) -> None:
        """No loop exchanges here."""
        assert not self.limiter.control.table.lock.locked()
        self.woken += 1

    def uses(self, *keys: str) -> None:
        """Keys that have been used in the window before, on every other turn just before its end."""
        for key in keys:
            self.limiter.allow(key)
        if not self.alone:
            self.node.exchanges_with(self.hub)
        self.clock.advance_ns(WINDOW_S * SECOND_NS * 3 // 4)


@pytest.fixture(params=[True, False], ids=["alone", "with a hub"])
def alone(request: pytest.FixtureRequest) -> bool:
    """Whether there is no hub."""
    return bool(request.param)


def admits(limiter: RateLimiter, key: str) -> int:
    """How many more are admitted at this moment."""
    return sum(limiter.allow(key) for _ in range(2 * QUOTA))


@pytest.mark.parametrize("asks", ASKING)
@pytest.mark.parametrize("kind", LIMITS)
def test_an_exception_at_any_instruction_leaves_nothing_behind(kind: str, asks: str, *, alone: bool) -> None:
    """The lock is free, the next decision is made, no more is admitted than otherwise, and hardly less."""
    world = InterruptedNode(kind, alone=alone)
    limiter, ask = world.limiter, ASKING[asks]
    every = EVERY_OF_SHORT if asks in SHORT else EVERY
    number, interrupted = sum(map(ord, kind + asks)) % every, True
    while interrupted:
        world.uses("asks", "does not", "interrupted")
        ask(limiter, "asks")
        with contextlib.suppress(Interrupted):
            interrupted = interrupted_at(number, lambda: ask(limiter, "interrupted"), raise_interrupted)
        told = f"at instruction {number}"
        assert limiter.test("interrupted").binding in ("a", "b"), told
        assert not limiter.control.table.lock.locked(), told
        without, after, here = (admits(limiter, key) for key in ("does not", "asks", "interrupted"))
        assert min(without, after) - LOST_MAX <= here <= max(without, after), told
        assert here == after or interrupted, told
        world.clock.advance_ns(10 * WINDOW_S * SECOND_NS)
        number += every
    assert number > every


@pytest.mark.parametrize("asks", ASKING)
@pytest.mark.parametrize("kind", LIMITS)
def test_a_decision_at_any_instruction_of_another_never_waits_for_it(kind: str, asks: str, *, alone: bool) -> None:
    """Both return; what cannot be decided at that moment is refused and counted, and the quota is kept."""
    world = InterruptedNode(kind, alone=alone)
    limiter, ask = world.limiter, ASKING[asks]
    number, interrupted, refused = sum(map(ord, kind + asks)) % EVERY, True, 0
    while interrupted:
        world.uses("asks", "does not", "interrupted")
        ask(limiter, "asks")
        answers: list[Decision] = []

        def asks_again(answers: list[Decision] = answers) -> None:
            answers.append(limiter.hit("interrupted"))

        before = limiter.control.table.reentered
        interrupted = interrupted_at(number, partial(ask, limiter, "interrupted"), asks_again)
        told = f"at instruction {number}"
        assert not any(answer.allowed and answer.reentered for answer in answers), told
        refused += sum(answer.reentered for answer in answers)
        assert limiter.control.table.reentered - before == sum(answer.reentered for answer in answers), told
        assert not limiter.control.table.lock.locked(), told
        charged = sum(answer.allowed for answer in answers) if asks != "reset" else 0
        without, after, here = (admits(limiter, key) for key in ("does not", "asks", "interrupted"))
        assert min(without, after) - 1 <= here + charged <= max(without, after) + (asks == "refund"), told
        world.clock.advance_ns(10 * WINDOW_S * SECOND_NS)
        number += EVERY
    assert number > EVERY


@pytest.mark.parametrize("puts_off", ["reset", "refund", "settle", "warm"])
def test_what_must_not_be_lost_is_done_after_the_decision(puts_off: str) -> None:
    """A reset, a refund and a settlement in the middle of a decision are put off, and done when it is over."""
    world = InterruptedNode("several", alone=True)
    limiter = world.limiter
    reservation = limiter.reserve("ada", 3)
    calls: dict[str, Callable[[], object]] = {
        "reset": lambda: limiter.reset("ada"),
        "refund": lambda: limiter.refund("ada", 3),
        "settle": lambda: reservation.settle(0),
        "warm": lambda: limiter.warm(["ada"]),
    }
    used = 3 if puts_off == "warm" else 0

    limiter.control.table.lock.run(calls[puts_off])

    assert (used, 1) == (limiter.usage("ada").own, limiter.control.table.reentered)


@pytest.mark.parametrize("kind", LIMITS)
def test_a_decision_within_another_says_so(kind: str) -> None:
    """It is refused, says that it was re-entered, is counted, and told once, after the lock was let go of."""
    world = InterruptedNode(kind, alone=True)
    limiter, told = world.limiter, list[tuple[str, bool]]()
    kernel, lock = limiter.control.table.kernel, limiter.control.table.lock
    kernel.on_reentry = lambda name: told.append((name, lock.locked()))
    asked = [
        lambda: limiter.hit("ada").reentered,
        lambda: limiter.test("ada").reentered,
        lambda: limiter.reserve("ada", 1).decision.reentered,
        lambda: limiter.wait_blocking("ada").reentered,
        lambda: not limiter.allow("ada"),
        lambda: limiter.allow_many(["ada", "bob"]) == [False, False],
        lambda: limiter.usage("ada").own == 0,
    ]

    answers = [lock.run(ask) for ask in asked]

    assert [True] * len(asked) == answers
    assert [("a", False)] == told
    assert 8 == limiter.control.table.reentered
    assert not limiter.hit("ada").reentered


def forgives() -> None:
    """Handle an exception."""
    try:
        raise LookupError
    except LookupError:
        pass


def test_an_interrupted_handler_leaves_no_exception_that_goes_on_being_handled() -> None:
    """Else it would be the context of whatever the tests after these raise, as no signal handler makes it."""
    number, handled = 0, []
    reached = True
    while reached:
        with contextlib.suppress(Interrupted):
            reached = interrupted_at(number, forgives, raise_interrupted, (__file__,))
        handled.append(sys.exc_info()[1])
        number += 1

    assert number > 5
    assert [None] * number == handled


def test_a_thread_in_the_middle_of_a_decision_waits_for_no_other() -> None:
    """If two did, each in the middle of a decision that the other asks for, both would wait for ever."""
    one, other = InterruptedNode("several", alone=True), InterruptedNode("sliding-log", alone=True)
    held, asked = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        asked.wait(60)

    thread = threading.Thread(target=lambda: other.limiter.control.table.lock.run(hold))
    thread.start()
    held.wait(60)

    answer = one.limiter.control.table.lock.run(other.limiter.hit, "ada")

    asked.set()
    thread.join(60)
    assert answer.reentered
