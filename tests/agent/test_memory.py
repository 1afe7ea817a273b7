"""Goal: `memory://` is a central limiter, exact from the first call on, and nothing runs in the background for it.

Method: a clock of the test's own. Where threads meet: a barrier, threads that give way at every few lines of a
decision, also in its midst, and a record of who decided when, which has to show that they really did take turns.
"""

from __future__ import annotations

import asyncio
import select
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count, pairwise
from secrets import token_hex
from types import FrameType
from typing import Any, TypeVar

import pytest

from reconverge import Agent, Limit, LimitConflict
from reconverge.testing import ManualClock
from tests.support.agents import admitted_of, exchange_threads

QUOTA = 10
MINUTE_S = 60.0
START_S = 1_750_000_020.0  # a minute begins
THREADS = 64
LINES = 2
Answer = TypeVar("Answer")


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands at the beginning of a minute."""
    return ManualClock(START_S)


@pytest.fixture
def name() -> str:
    """A name for kernels that no other test shares."""
    return token_hex(8)


@pytest.fixture
def restless() -> Iterator[None]:
    """Let threads give way in the midst of their decisions: at every few lines of the kernel."""
    lines = count()

    def give_way(frame: FrameType, event: str, _argument: Any) -> Any:
        if "reconverge/kernel" not in frame.f_code.co_filename:
            return None
        if event == "line" and next(lines) % LINES == 0:
            select.select([], [], [], 0)  # lets go of the interpreter for a moment
        return give_way

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threading.settrace(give_way)
    yield
    threading.settrace(None)
    sys.setswitchinterval(interval_s)


def test_nothing_runs_in_the_background(clock: ManualClock) -> None:
    """No thread is started, by no way of starting, and no exchange is counted."""
    before = set(threading.enumerate())
    agent = Agent("memory://", clock=clock)
    login = agent.limit("login", Limit(QUOTA, MINUTE_S))

    with agent:
        login.allow("ada")
        agent.start()

    assert before >= set(threading.enumerate())
    assert not agent.stats().running
    assert () == agent.stats().exchanges


def test_no_task_runs_either(clock: ManualClock) -> None:
    """In a loop the agent adds nothing to it."""
    agent = Agent("memory://", clock=clock)
    login = agent.limit("login", Limit(QUOTA, MINUTE_S))

    async def serve() -> int:
        async with agent:
            login.allow("ada")
            return len(asyncio.all_tasks())

    assert 1 == asyncio.run(serve())
    assert [] == exchange_threads()


def test_without_a_hub_an_agent_is_ready_at_once() -> None:
    """There is nobody to wait for."""
    assert Agent("memory://").ready


@pytest.mark.parametrize(
    ("hubs", "namespaces", "admitted"),
    [
        (("memory://{}", "memory://{}"), ("shop", "shop"), QUOTA),
        (("memory://", "memory://"), ("shop", "shop"), 12),
        (("memory://{}", "memory://{}-2"), ("shop", "shop"), 12),
        (("memory://{}", "memory://{}"), ("shop", "forum"), 12),
    ],
    ids=["one name", "no name", "different names", "different namespaces"],
)
def test_agents_of_one_name_and_namespace_share_their_limits_and_others_do_not(
    hubs: tuple[str, str], namespaces: tuple[str, str], admitted: int, name: str, clock: ManualClock
) -> None:
    """The cost that one admits, the other has no room for; `memory://` is private to its agent."""
    ada, bob = (
        Agent(hub.format(name), namespace=namespace, clock=clock).limit("login", Limit(QUOTA, MINUTE_S))
        for hub, namespace in zip(hubs, namespaces, strict=True)
    )

    assert admitted == admitted_of(ada, 6) + admitted_of(bob, 6)


def test_agents_of_one_name_must_agree_on_their_limits(name: str) -> None:
    """They decide from one count, which can only have one meaning."""
    Agent(f"memory://{name}").limit("login", "10/minute")

    with pytest.raises(LimitConflict, match="login"):
        Agent(f"memory://{name}").limit("login", "20/minute")


def test_64_threads_on_several_quotas_charge_all_of_them_or_none(restless: None, clock: ManualClock) -> None:
    """The scarcest quota decides, and at every moment all have counted the same."""
    agent = Agent("memory://", clock=clock)
    login = agent.limit("login", [Limit(5000, MINUTE_S), Limit(1000, MINUTE_S, "fixed-window"), Limit(3000, 600.0)])

    def decide(thread: int, attempt: int) -> str:
        if thread % 4 == 0:
            return "one" if len({usage.own for usage in login.usages("ada").values()}) == 1 else "several"
        if thread % 4 == 1:
            login.reserve("ada", 2).settle(1)
            return "settled"
        return "admitted" if login.allow("ada") else "refused"

    answers, turns = _all_at_once(decide, attempts=100)

    assert THREADS // 4 * 100 == answers["one"]
    stats = agent.stats().limits
    assert 1000 == login.usage("ada").own == login.usages("ada")["login"].own == login.usages("ada")["login#3"].own
    assert 1 == len({each.admitted for each in stats.values()})
    assert turns > THREADS  # one after another they would need one turn less


def test_64_threads_on_limits_that_share_one_parent_admit_what_it_may(restless: None, clock: ManualClock) -> None:
    """And no thread waits for another for ever."""
    agent = Agent("memory://", clock=clock)
    parent = agent.limit("api", Limit(1000, MINUTE_S))
    shares = [agent.limit(f"share-{number}", Limit(200, MINUTE_S), parent=parent) for number in range(3)]

    answers, turns = _all_at_once(
        lambda thread, _attempt: [*shares, parent][thread % 4].allow("ada", thread % 2 + 1), attempts=100
    )

    assert 1000 == sum(each.usage("ada").own for each in (*shares, parent))
    assert answers[True] < 1000 < THREADS * 100
    assert turns > THREADS


def _all_at_once(decide: Callable[[int, int], Answer], *, attempts: int) -> tuple[Counter[Answer], int]:
    """Lets 64 threads decide at the same time; returns their answers, and how often another thread came to decide."""
    barrier = threading.Barrier(THREADS)
    journal: list[tuple[int, Answer]] = []

    def work(thread: int) -> None:
        barrier.wait()
        for attempt in range(attempts):
            journal.append((thread, decide(thread, attempt)))  # noqa: PERF401  # each in its turn

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    turns = sum(one != other for (one, _), (other, _) in pairwise(journal))
    return Counter(answer for _, answer in journal), turns
