"""Goal: `demo` and `replay` time the call of an application, and print that."""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import signal
from array import array
from typing import Any

import pytest

from reconverge import Agent, Limit
from reconverge.cli.replay import worker
from reconverge.cli.replay.figures import figures_rows
from reconverge.cli.replay.fleet import ReplayOutcome, Setup
from reconverge.cli.replay.judgement import judge
from reconverge.cli.replay.trace import RecordedRequest
from reconverge.cli.replay.worker import Gauge, NodeHistory, ReplayPlan, Share
from reconverge.clock import SystemClock
from reconverge.limiter import RateLimiter

REQUESTS = 20
SLOWER_NS = 3_000_000
LIMIT = Limit(10, 10)


def slowed(call: object, took_ns: list[int]) -> object:
    """The same function, but slower; what each call took, seen from inside, is noted."""

    def slow(*arguments: object) -> object:
        began_ns = SystemClock.monotonic_ns()
        answer = call(*arguments)  # type: ignore[operator]
        while SystemClock.monotonic_ns() < began_ns + SLOWER_NS:
            pass
        took_ns.append(SystemClock.monotonic_ns() - began_ns)
        return answer

    return slow


def history_of_a_node(monkeypatch: pytest.MonkeyPatch) -> NodeHistory:
    """Runs a node of the fleet, alone and in this process, with twenty requests."""
    monkeypatch.setattr("reconverge.cli.replay.worker.signal.signal", lambda *_: signal.SIG_DFL)
    # A node is silent about outages; this process goes on after it.
    monkeypatch.setattr(logging.getLogger("reconverge"), "setLevel", lambda _: None)
    ours, theirs = multiprocessing.Pipe()
    plan = ReplayPlan(LIMIT, ("balanced",), ("judged",), ("timed",), 1, False, 0.1, 0, 0)
    ones, zeros = array("q", [1] * REQUESTS), array("q", [0] * REQUESTS)
    share = Share(array("q", range(REQUESTS)), ["ada"] * REQUESTS, ones, zeros)
    ours.send(SystemClock.monotonic_ns())
    worker.work("memory://", plan, share, Gauge(ctypes.c_longlong(), [ctypes.c_longlong()]), theirs)
    problem, histories = ours.recv(), ours.recv()

    assert problem is None
    history: NodeHistory = histories[0]
    return history


def test_the_time_of_a_decision_is_that_of_the_limiters_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the printed figure is what a user pays. Method: `allow` of all limiters is slower, and nothing else is."""
    took_ns: list[int] = []

    class SlowAgent(Agent):
        def limit(self, *arguments: Any, **settings: Any) -> RateLimiter:
            limiter = super().limit(*arguments, **settings)
            limiter.allow = slowed(limiter.allow, took_ns)  # type: ignore[method-assign,assignment]
            return limiter

    monkeypatch.setattr(worker, "Agent", SlowAgent)
    history = history_of_a_node(monkeypatch)

    assert REQUESTS == len(took_ns)
    assert all(timed >= took for timed, took in zip(history.decision_ns, took_ns, strict=True))
    assert REQUESTS == len(history.floor_ns)


def test_what_is_asked_for_the_judgement_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the judge's needs cost a user nothing. Method: the calls of the judge are slower, and nothing else is."""
    took_ns: list[int] = []

    class SlowAgent(Agent):
        def limit(self, *arguments: Any, **settings: Any) -> RateLimiter:
            limiter = super().limit(*arguments, **settings)
            monkeypatch.setattr(limiter.control.table, "decide", slowed(limiter.control.table.decide, took_ns))
            return limiter

    monkeypatch.setattr(worker, "Agent", SlowAgent)
    history = history_of_a_node(monkeypatch)

    assert REQUESTS == len(took_ns)
    assert min(history.decision_ns) < min(took_ns)


def test_the_figures_say_what_was_timed_and_beside_which_floor() -> None:
    """A time without the name of the call, and without one beside it, says nothing about a limiter."""
    requests = [RecordedRequest(0.0, "ada", 1, 0)]
    one = array("q", [1])
    history = NodeHistory(
        one, one, one, one, one, array("q", [1500]), array("q", [200]), array("q", [worker.NOT_ASKED])
    )
    setup = Setup(requests, LIMIT, ("balanced",), 1, 1.0, "embedded://", 0.1)
    rows = dict(figures_rows(judge(ReplayOutcome(setup, [[0]], [[history]], [1]))))

    assert "1.5 / 1.5 µs" == rows["RateLimiter.allow, median / 99th"]
    assert "0.2 / 0.2 µs" == rows["an increment in a dict, likewise"]
