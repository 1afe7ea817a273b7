"""Goal: nodes that declare one name with several quotas, windows or algorithms say so, once, and count it.

Method: two agents on a real Redis; how long that may go on is shortened, but for the test of just that.
"""

from __future__ import annotations

import pytest

from reconverge import Agent, Limit
from reconverge.agent.key_marks import KeyMarks
from reconverge.exchange import answer_stats
from reconverge.hub import Hub
from reconverge.policies import STRICT
from reconverge.simulation.explore.node import SmallNode
from reconverge.testing import ManualClock
from reconverge_sync.memory import MemoryHub
from tests.support.fixtures.agents import MakeAgent
from tests.support.servers import RedisServer
from tests.support.waiting import eventually


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Returns the warnings about limits that several nodes declare."""
    return [
        each.getMessage() for each in caplog.records if "another node of this namespace declares" in each.getMessage()
    ]


def test_a_node_is_told_that_another_declares_a_smaller_quota(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, by the node with the larger one, with both; the smaller one holds for the keys of both."""
    monkeypatch.setattr(answer_stats, "SMALLER_GRACE_US", 0)
    with (
        Agent(redis_server.url, namespace="shop", sync_interval=0.02) as small,
        Agent(redis_server.url, namespace="shop", sync_interval=0.02) as large,
    ):
        few, many = small.limit("login", "5/minute"), large.limit("login", "100/minute")

        def asked() -> bool:
            for limiter in (few, many):
                limiter.allow("ada")
            return large.stats().limits["login"].smaller > 3

        eventually(asked, "several answers have told of it")
        own = small.stats().limits["login"].smaller

    (said,) = warnings_of(caplog)
    assert "'login' with a capacity of 5, and this node with 100" in said
    assert 0 == own


def test_nothing_is_told_of_nodes_that_declare_the_same(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor of a limit of the same name in another namespace."""
    monkeypatch.setattr(answer_stats, "SMALLER_GRACE_US", 0)
    with (
        Agent(redis_server.url, namespace="shop", sync_interval=0.02) as one,
        Agent(redis_server.url, namespace="shop", sync_interval=0.02) as two,
        Agent(redis_server.url, namespace="other", sync_interval=0.02) as other,
    ):
        limiters = [
            one.limit("login", "100/minute"),
            two.limit("login", "100/minute"),
            other.limit("login", "5/minute"),
        ]

        def exchanged() -> bool:
            for limiter in limiters:
                limiter.allow("ada")
            return all(shard.exchanges > 5 for agent in (one, two, other) for shard in agent.stats().exchanges)

        eventually(exchanged, "all have exchanged")
        counted = [agent.stats().limits["login"].smaller for agent in (one, two, other)]

    assert [0, 0, 0] == counted
    assert [] == warnings_of(caplog)


APART = "they count the same keys apart, and each group of nodes admits the whole limit"


@pytest.mark.parametrize("on", ["memory", "redis"])
def test_a_node_is_told_that_another_declares_another_window_or_algorithm(
    redis_server: RedisServer, make_agent: MakeAgent, caplog: pytest.LogCaptureFixture, on: str
) -> None:
    """Once for each limit, with both. Their keys are counted apart, so no quota tells of it."""
    redis_server.command("FLUSHALL")
    hub: str | Hub = MemoryHub() if on == "memory" else redis_server.url
    limits: dict[str, str | Limit] = {
        "login": "5/minute",
        "mail": "5/minute",
        "same": "5/minute; 9/hour",
        "burst": "5/minute burst 9",
    }
    others = limits | {
        "login": "5/hour",
        "mail": Limit.parse("5/minute", algorithm="fixed-window"),
        "same": "7/minute; 9/hour",
    }
    for declared in (limits, others):
        agent = make_agent(hub, namespace="shop")
        for name, limit in declared.items():
            agent.limit(name, limit).allow("ada")
        eventually(lambda agent=agent: len(marks_of(agent)) == 6, "all marks are at the hub")  # type: ignore[misc]

    said = [each.getMessage() for each in caplog.records if APART in each.getMessage()]
    assert 2 == len(said)
    assert "the limit 'login' with 'sliding-window, 60 s'" in "".join(said)
    assert "this node with 'sliding-window, 3600 s'" in "".join(said)
    assert "the limit 'mail' with 'sliding-window, 60 s'" in "".join(said)
    assert "declare it with one algorithm and window on all nodes, or give one of the two another name" in said[0]


def test_a_limit_that_is_declared_later_is_compared_too(
    make_agent: MakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    """Tiers of one limit may differ in their windows, and are not compared."""
    hub = MemoryHub()
    one, other = make_agent(hub), make_agent(hub)
    for agent in (one, other):
        agent.limit("login", "5/minute").allow("ada")
        eventually(lambda agent=agent: len(marks_of(agent)) == 2, "its marks")  # type: ignore[misc]
    one.tier("api", "slow", Limit.parse("5/minute"))
    other.tier("api", "fast", Limit.parse("5/hour"))
    one.limit("mail", "5/minute").allow("ada")
    eventually(lambda: len(marks_of(one)) == 3, "the mark of the other limit")
    other.limit("mail", "5/hour").allow("ada")

    eventually(lambda: "the limit 'mail' with" in caplog.text, "the warning")
    assert 1 == caplog.text.count(APART)


def marks_of(agent: Agent) -> dict[str, int]:
    """Returns the marks of keys that an agent has left at its hub, by limit."""
    (marks,) = (each for each in agent._lifecycle.followers if isinstance(each, KeyMarks))
    return marks._again_ns


def test_what_goes_over_soon_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    """Goal: a larger quota that reaches one node after the other is no mistake. Method: half a minute on a clock."""
    clock = ManualClock(1_750_000_000)
    hub, first, second, seen = MemoryHub(clock=clock), SmallNode(clock), SmallNode(clock), answer_stats.AnswerStats()
    of_first = first.limit(Limit(5, 60.0, algorithm="sliding-window"), STRICT)
    of_second = second.limit(Limit(100, 60.0, algorithm="sliding-window"), STRICT)

    def exchange(node: SmallNode) -> None:
        batch = node.sends()
        node.reaches(hub)
        answer = None if node.flight is None else node.flight.answer
        node.hears()
        if node is second and batch is not None and answer is not None:
            seen.answered(batch, answer, seconds=0.0)

    def live(seconds: int) -> None:
        for _ in range(seconds * 10):
            clock.advance_ns(100_000_000)
            for node, table in ((first, of_first), (second, of_second)):
                table.decide("ada", 1, clock.monotonic_ns())
                exchange(node)

    live(20)
    within = list(warnings_of(caplog))
    counted = seen.smaller["limit"]
    live(20)

    assert [] == within
    assert counted > 0
    assert 1 == len(warnings_of(caplog))


async def test_a_limit_that_is_dropped_is_compared_no_more() -> None:
    """Or its comparison, which never comes, would be due for ever."""
    clock = ManualClock(1_750_000_000)
    hub, node, rounds = MemoryHub(clock=clock), SmallNode(clock), 0
    for name in ("login", "search"):
        node.limit(Limit(5, 60.0), STRICT, name)
    marks = KeyMarks(None, node.kernel, clock)
    for second in range(3000):
        if second == 1000:
            del node.kernel.tables["login"]
        if marks.due_ns() <= clock.monotonic_ns():
            rounds += second > 1000
            await marks.follow(hub, cut_off=False, timeout_s=1)
        clock.advance(1)

    assert 1 <= rounds <= 10
