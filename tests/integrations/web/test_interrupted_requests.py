"""Goal: a signal handler that asks what its own thread is just asking gets an answer, and nothing waits for ever.

Method: signals come every half of a millisecond while requests are decided, and their handler asks the same
guard, storage, cache or limiter. In addition a handler asks at a sample of the instructions, one after the other.
"""

from __future__ import annotations

import faulthandler
import gc
import itertools
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import flask
import pytest

from reconverge import Agent, RateLimiter, Usage
from reconverge.clock import SystemClock
from reconverge.integrations import Guard, PlainRequest, Rule
from reconverge.integrations.asgi import RateLimitMiddleware
from reconverge.integrations.clients.outgoing import Outgoing
from reconverge.integrations.dropin.shared_counts import COUNT_MAX
from reconverge.integrations.flask import Limits
from reconverge.integrations.web.failures import Failures
from reconverge.testing import ManualClock
from tests.integrations.dropin.test_django_cache import cache_at
from tests.support.applications.asking import ADA, Answer, asgi_answer, http_scope
from tests.support.applications.storages import limiter_at
from tests.support.effort import tried
from tests.support.opcodes import interrupted_at

INTERVAL_S: Final = 0.0005
SIGNALS: Final = 60
"""So many make a storm."""
IN_A_ROW_MAX: Final = 3
"""So many signals interrupt a request with another one; if all did, a slow machine would never get on with it."""
HANGS_S: Final = 60
"""After so long the process ends and says where it was: a thread that waits for itself heeds no timeout."""
EVERY: Final = 23
"""One of so many instructions is interrupted."""
EVERY_OF_BEGINNING: Final = tried(7, long=1)
"""Likewise, where a count begins: each try makes an agent, and runs all instructions before that one again."""
numbers = itertools.count()


@contextmanager
def ends_if_it_hangs() -> Iterator[None]:
    """Ends the process, rather than wait for ever."""
    faulthandler.dump_traceback_later(HANGS_S, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def in_a_storm(asks: Callable[[], object]) -> int:
    """Ask until enough signals have come, whose handler asks as well; returns how often was asked."""
    asked = handled = in_a_row = 0

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal handled, in_a_row
        if in_a_row < IN_A_ROW_MAX:
            in_a_row += 1
            asks()
            handled += 1

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, INTERVAL_S, INTERVAL_S)
    try:
        with ends_if_it_hangs():
            while handled < SIGNALS:
                asks()
                asked, in_a_row = asked + 1, 0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return asked + handled


def at_each_instruction(asks: Callable[[], object]) -> int:
    """Ask, and have a handler ask at one instruction of it, and at another one, to the last; returns how often."""
    asked, number, interrupted = 0, 0, True
    with ends_if_it_hangs():
        while interrupted:
            interrupted = interrupted_at(number, asks, asks)
            asked += 2 if interrupted else 1
            number += EVERY
    assert asked > 10
    return asked


@pytest.fixture(params=[in_a_storm, at_each_instruction])
def asked_by(request: pytest.FixtureRequest) -> Callable[[Callable[[], object]], int]:
    """Two ways to ask in the middle of asking; both return how often was asked."""
    asked: Callable[[Callable[[], object]], int] = request.param
    return asked


AskedBy = Callable[[Callable[[], object]], int]


def fails(_: object) -> Any:
    raise KeyError("an application's mistake")


def now(steps: Coroutine[Any, Any, Answer]) -> Answer:
    """The answer of a coroutine that waits for nothing."""
    try:
        steps.send(None)
    except StopIteration as end:
        answer: Answer = end.value
        return answer
    raise AssertionError("it waits")


def test_a_guard_counts_what_it_refuses_shadows_and_exempts_once_each(asked_by: AskedBy) -> None:
    """Refusals, shadows, exemptions and failures are counted, and read, in the middle of each other."""
    guard = Guard("memory://")
    guard.request_filter(lambda request: request.path == "/exempt")
    refusing = [guard.declare(Rule(limits="1/hour"))]
    failing = [guard.declare(Rule(limits="1/hour", key_func=fails))]
    shadowed = [guard.declare(Rule(limits="1/hour", shadow=True))]
    answers: list[bool] = []

    def ask() -> None:
        refused = [bool(guard.check(PlainRequest(client=ADA), rules)) for rules in (refusing, failing)]
        answers.extend(refused)
        guard.check(PlainRequest(client=ADA), shadowed)
        guard.check(PlainRequest(client=ADA, path="/exempt"), refusing)
        guard.stats()

    asked = asked_by(ask)

    stats = guard.stats()
    assert 2 * asked == len(answers)
    assert answers.count(True) <= 2
    assert answers.count(False) == stats.refused
    assert asked == stats.exempted == stats.failures["KeyError"]
    assert asked - 1 <= stats.shadowed <= asked


@pytest.mark.parametrize("limits", ["1/hour", "1/hour; 5/day"])
def test_a_tier_that_is_declared_in_the_middle_of_its_declaration_is_one_limit(limits: str) -> None:
    """Both requests are counted by the same limit, which the agent knows."""
    number = 0
    for number in itertools.count(0, EVERY):
        guard = Guard("memory://")
        rule = guard.declare(Rule(limits=lambda: limits))
        answers: list[bool] = []

        def ask(guard: Guard = guard, rule: Any = rule, answers: list[bool] = answers) -> None:
            answers.append(bool(guard.check(PlainRequest(client=ADA), [rule])))

        with ends_if_it_hangs():
            interrupted = interrupted_at(number, ask, ask)
        told = f"at instruction {number}"
        assert ({}, 1) == (guard.stats().failures, answers.count(True)), told
        if not interrupted:
            break
    assert number > 10 * EVERY


@pytest.fixture
def no_collections() -> Iterator[None]:
    """Let no collection run a signal handler while CPython changes a context variable, of which Flask has two.

    CPython 3.11 crashes then, in `_PyHamt_Assoc`: the handler replaces the mapping that is just being copied.
    """
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collections")
def test_a_flask_application_answers_in_the_middle_of_a_request(asked_by: AskedBy) -> None:
    """Of Flask with limits of which one refuses and one has a broken key function."""
    app = flask.Flask(__name__)
    limits = Limits(fails, app=app, agent="memory://")

    @app.get("/")
    @limits.limit("3/hour")
    def index() -> str:
        return ""

    statuses: list[int] = []

    def ask() -> None:
        statuses.append(app.test_client().get("/").status_code)

    ask()  # Flask imports more at its first request
    asked = 1 + asked_by(ask)

    assert asked == len(statuses) == limits.guard.stats().failures["KeyError"]
    assert {200, 429} == set(statuses)
    assert 3 >= statuses.count(200)


def test_an_asgi_application_answers_in_the_middle_of_a_request(asked_by: AskedBy) -> None:
    """Of a middleware with a limit that refuses and with a broken key function."""

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    limited: Any = RateLimitMiddleware(app, "3/hour", key_func=fails, agent="memory://")
    statuses: list[int] = []
    asked = asked_by(lambda: statuses.append(now(asgi_answer(limited, http_scope("/"))).status))

    assert asked == len(statuses) == limited.guard.stats().failures["KeyError"]
    assert {200, 429} == set(statuses)
    assert 3 >= statuses.count(200)


@pytest.mark.parametrize("strategy", ["fixed-window", "moving-window", "sliding-window-counter"])
def test_a_storage_of_flask_limiter_answers_in_the_middle_of_a_request(strategy: str, asked_by: AskedBy) -> None:
    """Hits, tests and statistics of the library's strategies; no more is admitted than the limit says."""
    limits: Any = pytest.importorskip("limits")
    limiter = limiter_at(f"reconverge+memory://interrupted-{next(numbers)}", strategy)
    item = limits.parse("5/hour")
    admitted = []

    def ask() -> None:
        admitted.append(limiter.hit(item, "ada"))
        limiter.test(item, "ada")
        limiter.get_window_stats(item, "ada")

    asked = asked_by(ask)

    assert asked == len(admitted)
    assert 1 <= admitted.count(True) <= 5


def test_a_cache_of_django_counts_what_is_added_and_counted_in_the_middle(asked_by: AskedBy) -> None:
    """django-ratelimit does so.

    An addition that was answered without an error is counted, or is told to be too much.
    """
    cache = cache_at("memory://", namespace=f"interrupted-{next(numbers)}")
    keys = itertools.count()
    counts: list[int] = []

    def ask() -> None:
        key = f"hits-{next(keys)}"
        counts.append(1 if cache.add("hits", 1) else cache.incr("hits"))
        cache.add(key, 3)
        cache.set("text", key)
        cache.get("text")
        cache.get(key)
        cache.delete(key)

    asked = asked_by(ask)

    counted = [count for count in counts if count <= asked]
    assert asked == len(counts)
    assert len(counted) == cache.get("hits")
    assert 1 == counts.count(1)


def test_a_count_that_is_begun_in_the_middle_of_its_beginning_begins_once() -> None:
    """Whichever of the two begins it, what is added counts once."""
    number = 0
    for number in itertools.count(step=EVERY_OF_BEGINNING):
        cache = cache_at("memory://", namespace=f"interrupted-{next(numbers)}")
        added: list[bool] = []
        with ends_if_it_hangs():
            interrupted = interrupted_at(
                number,
                lambda: added.append(cache.add("hits", 5)),  # noqa: B023  # they are called here
                lambda: added.append(cache.add("hits", 5)),  # noqa: B023  # likewise
            )
        assert (1, 5) == (added.count(True), cache.get("hits")), f"at instruction {number}"
        if not interrupted:
            break
    assert number > 100


def test_a_count_that_was_counted_on_before_its_beginning_was_charged_has_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first handler comes in the middle of a decision and can charge nothing; the second one counts first."""
    cache = cache_at("memory://", namespace=f"interrupted-{next(numbers)}")
    counts: list[int] = []
    usage, interrupts = RateLimiter.usage, iter([True])

    def count() -> None:
        counts.append(1 if cache.add("hits", 1) else cache.incr("hits"))

    def interrupted_usage(limiter: RateLimiter, key: str) -> Usage:
        used = usage(limiter, key)
        if next(interrupts, False):
            limiter.control.table.lock.run(count)
            count()
        return used

    monkeypatch.setattr(RateLimiter, "usage", interrupted_usage)

    count()

    assert ([COUNT_MAX, 1, 2], 2) == (counts, cache.get("hits"))


def test_who_waits_on_a_thread_is_answered_in_the_middle_of_waiting(asked_by: AskedBy) -> None:
    """Waiting, deciding, giving back, statistics and health, of limits that are waited for in Python."""
    agent = Agent("memory://")
    limiters = [agent.limit("several", "5/hour; 50/day"), agent.limit("log", "5/hour", algorithm="sliding-log")]
    admitted = 0

    def ask() -> None:
        nonlocal admitted
        for limiter in limiters:
            admitted += limiter.wait_blocking("ada", timeout=0.0001).allowed
            limiter.test("ada")
        agent.stats()
        agent.health()

    asked_by(ask)

    assert 2 <= admitted <= 10
    assert all(not table.lock.locked() for limiter in limiters for table in limiter.control.tables)


def test_what_is_off_and_in_shadow_is_counted_once_each(asked_by: AskedBy) -> None:
    """Requests that come in the middle of others are among the statistics."""
    agent = Agent("memory://")
    off, shadow = agent.limit("off", "1/hour", switch="off"), agent.limit("shadow", "1/hour", switch="shadow")

    def ask() -> None:
        off.allow("ada")
        shadow.allow("ada", 1)
        agent.stats()

    asked = asked_by(ask)

    limits = agent.stats().limits
    assert asked == limits["off"].unlimited
    assert asked - 1 == limits["shadow"].would_refuse


def test_a_server_is_left_alone_for_as_long_as_it_ever_said(asked_by: AskedBy) -> None:
    """Calls to other servers are admitted, and responses heard, in the middle of each other."""
    outgoing = Outgoing(Agent("memory://", clock=ManualClock()).limit("calls", "1000000/second"), timeout=0)
    holds = itertools.count(1)

    def ask() -> None:
        outgoing.admit_blocking("example.org")
        outgoing.learn("example.com", 503, {"Retry-After": str(next(holds))})
        assert not outgoing.admit_blocking("example.com")

    asked_by(ask)

    refused = outgoing.admit_blocking("example.com")
    assert refused is not None
    assert next(holds) - 1 == refused.retry_after
    assert {} == outgoing.failures.counts()


def test_failures_are_counted_once_each_in_the_middle_of_each_other(asked_by: AskedBy) -> None:
    """Their number and their kinds can be read there, too."""
    failures = Failures(SystemClock())

    def ask() -> None:
        failures.add(KeyError(), "login")
        failures.counts()

    asked = asked_by(ask)

    assert {"KeyError": asked} == failures.counts()
    assert asked == failures.total
