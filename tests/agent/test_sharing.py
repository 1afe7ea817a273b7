"""Goal: two agents on one Redis share a limit, and what each of them says about it is what both have done.

Method: two agents in one process, each with a thread and a connection of its own; a window so long that it does not end
within the test, and requests on both until nothing more is admitted.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import ge

import pytest

from reconverge import Agent
from tests.support.agents import admitted_of, exchanges_of, heard, introduce, net_at
from tests.support.fixtures.agents import MakeAgent
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

QUOTA = 100
LIMIT = f"{QUOTA}/year"
ALGORITHMS = ("fixed-window", "sliding-window", "token-bucket")


class AdaAndBob:
    """Two agents that share one limit, and what both have admitted to one key."""

    def __init__(self, ada: Agent, bob: Agent, algorithm: str | None) -> None:
        self.agents = (ada, bob)
        self.ada, self.bob = (agent.limit("login", LIMIT, algorithm=algorithm) for agent in self.agents)
        self.admitted = 0

    def ask(self, of_ada: int = 3, of_bob: int = 7) -> int:
        """Ask both for so much, one request at a time; returns what was admitted in all."""
        self.admitted += admitted_of(self.ada, of_ada) + admitted_of(self.bob, of_bob)
        return self.admitted

    def use_up(self) -> None:
        """Ask until the quota is used up, and then on and on while both agents exchange some more."""
        eventually(lambda: self.ask() >= QUOTA, "the whole quota")
        enough = [exchanges_of(agent) + 20 for agent in self.agents]
        eventually(lambda: self.ask() and all(map(ge, map(exchanges_of, self.agents), enough)), "more answers")


MakePair = Callable[..., AdaAndBob]


@pytest.fixture
def make_pair(redis_server: RedisServer, make_agent: MakeAgent) -> MakePair:
    """Make two agents on one server."""

    def make(policy: str, algorithm: str | None = None) -> AdaAndBob:
        ada, bob = (make_agent(redis_server.url, policy=policy) for _ in range(2))
        return AdaAndBob(ada, bob, algorithm)

    return make


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_strict_admits_exactly_the_quota(algorithm: str, make_pair: MakePair) -> None:
    """All of it, wherever it is asked for, and not one request more however often it is asked for then."""
    pair = make_pair("strict", algorithm)

    pair.use_up()

    assert QUOTA == pair.admitted


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_balanced_stays_within_its_declared_bound(algorithm: str, make_pair: MakePair) -> None:
    """For a key that both know: at least the quota, and at most what the policy declares beyond it."""
    pair = make_pair("balanced", algorithm)
    eventually(lambda: heard(pair.ada) and heard(pair.bob), "answers to both")

    pair.use_up()

    assert QUOTA <= pair.admitted <= QUOTA + pair.ada.control.policy.bound(QUOTA, nodes=2)


def test_what_one_does_not_use_the_other_may(make_pair: MakePair) -> None:
    """The allowances move to where the traffic is; the idle node keeps one request's worth, for its next one."""
    pair = make_pair("strict")
    eventually(lambda: pair.ask(of_bob=0) >= 10, "a start on one node")

    eventually(lambda: pair.ask(of_ada=0, of_bob=1) >= QUOTA - 1, "the rest on the other")

    assert QUOTA - 1 <= pair.admitted <= QUOTA


def test_usage_tells_own_from_total(make_pair: MakePair) -> None:
    """Both come to know what both have done."""
    pair = make_pair("balanced")
    own = introduce(pair.ada) + 5, introduce(pair.bob)
    eventually(lambda: pair.ada.allow("ada", cost=5), "room for five")

    eventually(lambda: sum(own) == pair.ada.usage("ada").total == pair.bob.usage("ada").total, "a common total")

    assert own == (pair.ada.usage("ada").own, pair.bob.usage("ada").own)
    assert QUOTA == pair.ada.usage("ada").limit


@pytest.mark.parametrize("question", ["usage", "test"])
def test_who_only_asks_is_told_what_the_others_use(question: str, make_pair: MakePair) -> None:
    """Again and again, while it asks: a node without any traffic of its own does not go by its first answer."""
    pair = make_pair("balanced")
    eventually(lambda: heard(pair.bob), "an answer before anything was used")
    used = introduce(pair.ada)

    if question == "usage":
        eventually(lambda: used == pair.bob.usage("ada").total, "the news")
    else:
        cell = pair.bob.control.table.cells["ada"]
        eventually(lambda: pair.bob.test("ada") is not None and used == cell.fleet_used, "the news")


def test_remaining_is_what_the_whole_fleet_has_left(make_pair: MakePair) -> None:
    """A response header shows it, and not the part that this node may take by itself."""
    pair = make_pair("balanced")
    left = QUOTA - introduce(pair.ada) - introduce(pair.bob) - 20
    eventually(lambda: pair.ada.allow("ada", cost=20), "room for twenty")

    eventually(lambda: left == pair.bob.test("ada").remaining, "what is left, on the other node")

    assert left == pair.ada.test("ada").remaining


def test_reset_forgets_a_key_on_all_nodes(make_pair: MakePair) -> None:
    """The node that was not asked hears of it with its next exchange, and admits again."""
    pair = make_pair("balanced")
    pair.use_up()
    own = pair.bob.usage("ada").own

    pair.ada.reset("ada")

    eventually(lambda: pair.bob.usage("ada").own < own, "the news of the reset")
    eventually(lambda: pair.bob.allow("ada"), "room where the reset was heard of")
    eventually(lambda: pair.ada.allow("ada"), "room where it was made")


def test_testing_charges_nothing(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """Neither here nor with the hub, however often it is done."""
    agent = make_agent(redis_server.url)
    login = agent.limit("login", LIMIT)
    introduced = introduce(login)

    for _ in range(2 * QUOTA):
        login.test("ada")
        login.test("bob", cost=QUOTA)
    agent.stop()

    assert introduced == login.usage("ada").own
    assert 0 == login.usage("bob").own
    assert introduced == net_at(redis_server.url)


def test_a_warm_key_is_known_before_its_first_request(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """The hub has been asked what others have used, and nothing was charged for it."""
    used = introduce(make_agent(redis_server.url).limit("login", LIMIT), "ada")
    agent = make_agent(redis_server.url)
    login = agent.limit("login", LIMIT)

    login.warm(["ada", "bob", "eve"])

    eventually(lambda: all(_is_known(agent, key) for key in ("ada", "bob", "eve")), "an answer for every key")
    assert (0, used) == (login.usage("ada").own, login.usage("ada").total)
    assert 0 == agent.stats().limits["login"].admitted


def _is_known(agent: Agent, key: str) -> bool:
    cell = agent._kernel.tables["login"].cells.get(key)
    return cell is not None and cell.heard
