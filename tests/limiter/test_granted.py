"""Goal: an answer of the hub refuses a request only if it knew of its cost and has granted less.

Method: the real kernel, syncer and hub, whose every message the test carries, while other requests come in between;
threads on a real Redis.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Barrier

import pytest

from reconverge import Agent, Limit
from reconverge.clock import MILLISECOND_NS, SECOND_NS
from reconverge.policies import BALANCED
from reconverge.simulation.asked import Beside, SimulatedLimit
from reconverge.simulation.explore.node import INTERVAL_NS
from tests.limiter.test_asking import ALGORITHMS, FIVE, PATIENT_S, WITHIN_NS, Ask, AskingNodes, Ring
from tests.support.servers import RedisServer

SLOTS = Limit(5, algorithm="concurrency")
KINDS = [Limit(5, 60, algorithm=algorithm) for algorithm in ALGORITHMS] + [SLOTS]
TWENTY = 20


class Burst(AskingNodes):
    """A node that exchanges while requests come: each message takes a moment, in which others may arrive."""

    def __init__(self, *quotas: Limit, nodes: int = 1, seed: int = 0) -> None:
        super().__init__(*quotas, nodes=nodes, policy=BALANCED)
        self.random = Random(seed)
        self.asked: list[Ask] = []
        self.at_once: list[bool] = []

    def comes(self) -> None:
        """Another request, which asks if memory does not settle it."""
        asking = self.asking[0]
        settled = asking.at_once(asking.request("ada", 1, None, WITHIN_NS))
        if settled is None:
            self.asked.append(self.asks())
        else:
            self.at_once.append(settled.decision.allowed)

    def passes(self, requests: int) -> None:
        """So many requests come, one after the other, while the node exchanges without a pause."""
        node, left = self.nodes[0], requests
        while left or any(ask.waits for ask in self.asked):
            for step in (node.sends, lambda: node.reaches(self.hub), node.hears):
                step()
                for _ in range(min(left, self.random.randrange(3))):
                    self.comes()
                    left -= 1
                self.clock.advance_ns(MILLISECOND_NS // 100)
                for ask in self.asked:
                    if ask.waits and self.random.random() < 0.3:
                        ask.goes_on()

    @property
    def admitted(self) -> int:
        """How many requests were."""
        return sum(self.at_once) + sum(ask.allowed for ask in self.asked)


def asks_again_and_is_admitted(scene: AskingNodes, ask: Ask) -> None:
    """Asks again as its grant is spent, and is admitted by the next answer."""
    ask.goes_on()
    assert ask.waits

    scene.clock.advance_ns(MILLISECOND_NS)
    scene.exchanges()
    ask.goes_on()
    assert ask.allowed


@pytest.mark.parametrize("limit", KINDS, ids=str)
def test_a_request_whose_grant_another_one_has_charged_asks_again(limit: Limit) -> None:
    """The hub has granted all that waited, so it has refused nothing."""
    scene = AskingNodes(limit, nodes=1)
    ask = scene.asks()
    scene.exchanges()
    assert scene.settles()  # while the first has yet to look
    request = scene.asking[0].request("ada", 1, None, WITHIN_NS)
    while scene.asking[0].gate.fits(request.key, request.costs):
        assert scene.settles()

    asks_again_and_is_admitted(scene, ask)
    assert scene.nothing_waits()


@pytest.mark.parametrize("limit", KINDS, ids=str)
def test_a_report_that_is_under_way_changes_nothing_of_what_the_last_answer_has_granted(limit: Limit) -> None:
    """That was all that waited then; more waits by now, of which the hub has yet to hear."""
    scene = AskingNodes(limit, nodes=1)
    node, late = scene.nodes[0], scene.asks()
    scene.exchanges()
    assert scene.settles()  # while it has yet to look
    scene.clock.advance_ns(MILLISECOND_NS)
    others = [scene.asks() for _ in range(2)]
    node.sends()
    scene.clock.advance_ns(MILLISECOND_NS)

    late.goes_on()
    assert late.waits

    node.reaches(scene.hub)
    node.hears()
    for ask in (*others, late):
        ask.goes_on()
    assert [True] * 3 == [ask.allowed for ask in (*others, late)]
    assert scene.nothing_waits()


def test_several_quotas_ask_again_as_one_does() -> None:
    """Another request's charge is missing from each of them."""
    scene = AskingNodes(FIVE, Limit(4, 3600, algorithm="sliding-window"), nodes=1)
    ask = scene.asks()
    scene.exchanges()
    assert scene.settles()

    asks_again_and_is_admitted(scene, ask)


def test_limits_that_are_charged_together_ask_again_as_one_does() -> None:
    """Contracts and guards ask so: the grants of both were charged by another request."""
    scene = AskingNodes(FIVE, nodes=1)
    beside = Beside(Limit(4, 3600, algorithm="sliding-window"), 1)
    asked = SimulatedLimit(scene.limits[0])
    asked.have_beside(scene.nodes[0].limit(beside.limit, BALANCED, "beside"), beside)
    for asking in (*asked._asking, asked._beside_asking):
        asking.manual = False  # the test sees to it that messages are carried
    steps = asked.ask("ada", 1, WITHIN_NS, Ring())
    next(steps)
    scene.exchanges()
    with pytest.raises(StopIteration) as other:
        next(asked.ask("ada", 1, WITHIN_NS, Ring()))
    assert all(verdict.allowed for _, verdict in other.value.value)

    next(steps)  # it waits
    scene.clock.advance_ns(MILLISECOND_NS)
    scene.exchanges()

    with pytest.raises(StopIteration) as end:
        next(steps)
    assert all(verdict.allowed for _, verdict in end.value.value)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("limit", [Limit(TWENTY, 60, algorithm=algorithm) for algorithm in ALGORITHMS], ids=str)
def test_a_burst_of_exactly_the_quota_is_admitted_whole(limit: Limit, seed: int) -> None:
    """However its requests are spread over the exchanges meanwhile; and of the next ones none."""
    burst = Burst(limit, seed=seed)

    burst.passes(TWENTY)
    assert TWENTY == burst.admitted

    burst.passes(3)
    assert TWENTY == burst.admitted


def test_an_answer_that_grants_less_refuses_what_it_knew_of() -> None:
    """Two ask for five each, and there are five: the other one does not ask again."""
    scene = AskingNodes(FIVE)
    asks = [scene.asks(cost=5) for _ in range(2)]
    scene.exchanges()
    for ask in asks:
        ask.goes_on()

    assert [False, True] == sorted(ask.allowed for ask in asks)


def test_what_was_granted_for_a_window_refuses_nothing_in_the_next() -> None:
    """The answer arrives in the last moment, and the request looks in the first one of a window that is all free."""
    scene = AskingNodes(Limit(5, 60, algorithm="fixed-window"))
    while scene.settles(1):
        pass
    ends_ns = 60 * SECOND_NS - scene.clock.wall_ns() % (60 * SECOND_NS)
    scene.clock.advance_ns(ends_ns - 2 * MILLISECOND_NS)
    for node in (1, 0):
        scene.exchanges(node)
    ask = scene.asks(0)
    scene.nodes[0].sends()
    scene.nodes[0].reaches(scene.hub)
    scene.nodes[0].hears()
    scene.clock.advance_ns(4 * MILLISECOND_NS)

    ask.goes_on()
    assert ask.waits

    scene.exchanges()
    ask.goes_on()
    assert ask.allowed


def test_what_a_large_cost_is_refused_a_small_one_may_ask_for() -> None:
    """The hub has said that there are no three; it has not said that there is not one."""
    scene = AskingNodes(Limit(12, 60, algorithm="sliding-window"))
    assert scene.settles(1, cost=10)
    assert not scene.settles(0, cost=3)

    assert not scene.asks(cost=3).waits
    assert not scene.asks(cost=4).waits
    assert scene.settles(0, cost=1)


def test_no_pause_outlasts_the_window_that_it_is_about() -> None:
    """Then all is free, and the next request asks."""
    scene = AskingNodes(FIVE)
    ends_ns = 60 * SECOND_NS - scene.clock.wall_ns() % (60 * SECOND_NS)
    scene.clock.advance_ns(ends_ns - INTERVAL_NS)
    for _ in range(3):  # does not ask, and is granted ahead of its requests
        scene.limits[0].allow("ada")
        scene.exchanges(0)
    usage = scene.limits[0].tables[0].usage("ada")
    assert usage.allowance > usage.own
    scene.clock.advance_ns(INTERVAL_NS // 2)
    assert not scene.settles(1, cost=5 - usage.own)
    assert not scene.asks(1, cost=5 - usage.own).waits

    scene.clock.advance_ns(INTERVAL_NS // 2)
    assert scene.asks(1, cost=5 - usage.own).waits


def test_threads_that_ask_for_exactly_the_quota_are_all_admitted(
    redis_server: RedisServer, make_agent: Callable[..., Agent]
) -> None:
    """The threads of a server of gRPC or WSGI ask so: one agent, about one new key after the other."""
    limiter = make_agent(redis_server.url).limit("login", f"{TWENTY}/day")
    start = Barrier(TWENTY)

    def ask(_: int) -> int:
        admitted = 0
        for number in range(10):
            start.wait()
            admitted += limiter.ask_blocking(f"customer {number}", within=PATIENT_S).allowed
        return admitted

    with ThreadPoolExecutor(TWENTY) as threads:
        assert 10 * TWENTY == sum(threads.map(ask, range(TWENTY)))
