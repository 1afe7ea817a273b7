"""Goal: an estimate is charged at once and corrected once, up or down, and the correction counts for everybody.

Method: a node alone with a clock of the test's own, for every algorithm; and two agents on a real Redis.
"""

from __future__ import annotations

import pytest

from reconverge import Agent, Limit, RateLimiter
from reconverge.testing import ManualClock
from tests.support.agents import NEVER_FULL, heard, introduce, net_at
from tests.support.fixtures.agents import MakeAgent
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

ALGORITHMS = ("fixed-window", "sliding-window", "token-bucket", "gcra")
QUOTA = 100
MINUTE_S = 60.0
START_S = 1_750_000_020.0  # a minute begins


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands at the beginning of a minute."""
    return ManualClock(START_S)


@pytest.fixture(params=ALGORITHMS)
def login(request: pytest.FixtureRequest, clock: ManualClock) -> RateLimiter:
    """A limit of each algorithm in turn."""
    return Agent("memory://", clock=clock).limit("login", Limit(QUOTA, MINUTE_S, request.param))


def test_what_is_spent_within_the_estimate_is_settled_at_the_end(login: RateLimiter) -> None:
    """Until then the estimate is charged, so that nobody else gets what may yet be needed."""
    with login.reserve("ada", 80) as reservation:
        reservation.spend(10)
        reservation.spend(20)
        assert 80 == login.usage("ada").own

    assert 30 == login.usage("ada").own
    assert login.allow("ada", 70)


def test_what_is_spent_beyond_the_estimate_is_charged_at_once(login: RateLimiter) -> None:
    """A stream that goes on for long is not found out at its end."""
    with login.reserve("ada", 20) as reservation:
        reservation.spend(15)
        reservation.spend(30)
        assert 45 == login.usage("ada").own
        reservation.spend(5)

    assert 50 == login.usage("ada").own


def test_a_settlement_has_the_last_word_over_what_was_spent(login: RateLimiter) -> None:
    """Also when it says less."""
    with login.reserve("ada", 20) as reservation:
        reservation.spend(45)
        reservation.settle(40)
        reservation.spend(10)

    assert 40 == login.usage("ada").own


def test_what_was_spent_before_a_failure_is_charged(login: RateLimiter) -> None:
    """It is not abandoned: some of it has happened."""

    def fail() -> None:
        with login.reserve("ada", 80, on_abandon="return") as reservation:
            reservation.spend(25)
            raise LookupError

    with pytest.raises(LookupError):
        fail()

    assert 25 == login.usage("ada").own


def test_nothing_is_spent_of_what_was_refused(login: RateLimiter) -> None:
    """And it is no mistake to try."""
    login.allow("ada", 90)
    with login.reserve("ada", 20) as reservation:
        reservation.spend(5)

    assert not reservation
    assert 90 == login.usage("ada").own


def test_the_decision_says_what_any_decision_says(login: RateLimiter) -> None:
    """How much is left, or how long to wait."""
    admitted = login.reserve("ada", 80)
    refused = login.reserve("ada", 80)

    assert (True, 20, 0.0) == (admitted.decision.allowed, admitted.decision.remaining, admitted.decision.retry_after)
    assert refused.decision.retry_after > 0


def test_the_hub_hears_the_truth(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """Charges and what was given back of them, in its total over all nodes and all time."""
    agent = make_agent(redis_server.url)
    login = agent.limit("login", NEVER_FULL)
    admitted = introduce(login)

    for actual in (30, 50, 80):
        login.reserve("ada", 50).settle(actual)
    agent.stop()

    assert admitted + 30 + 50 + 80 == net_at(redis_server.url)


def test_debt_refuses_on_other_nodes_too(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """The use on one node is missing on all others."""
    ada, bob = (make_agent(redis_server.url).limit("login", f"{QUOTA}/year") for _ in range(2))
    ada.reserve("ada", 80).settle(150)

    eventually(lambda: bob.usage("ada").total == 150, "the news of the debt")

    assert not bob.test("ada")
    assert 0 == bob.test("ada").remaining


def test_what_is_given_back_others_may_use(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """On another node, a few exchanges later."""
    ada, bob = (make_agent(redis_server.url).limit("login", f"{QUOTA}/year") for _ in range(2))
    reservation = ada.reserve("ada", QUOTA)
    eventually(lambda: heard(bob) and bob.usage("ada").total == QUOTA, "the news of the estimate")
    assert not bob.allow("ada", 50)

    reservation.settle(10)

    eventually(lambda: bob.allow("ada", 50), "room for fifty")
