"""A share of the fleet's capacity for critical requests, on several nodes, and without the hub."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from reconverge import Agent
from reconverge.errors import InvalidSetting
from reconverge.shedding import FleetShedder, ShedRefusal, TrafficClasses
from reconverge.shedding.fleet import Remembered
from reconverge.shedding.layers import Arrival
from reconverge.shedding.rate import Charge
from reconverge.testing import ManualClock
from tests.support.fixtures.agents import MakeAgent
from tests.support.servers import RedisServer, free_port
from tests.support.waiting import eventually, exit_code_of

CRITICAL, POST, GET, TEST = range(4)
SECOND = 10**9


def admitted(shedder: FleetShedder, rank: int, times: int, now_ns: int = 0) -> int:
    return sum(not isinstance(shedder.enter(Arrival("", rank, now_ns)), ShedRefusal) for _ in range(times))


def alone(capacity: str = "100/minute", **settings: Any) -> FleetShedder:
    """A shedder of a fleet of one node, whose time stands still."""
    return FleetShedder(Agent("memory://", clock=ManualClock()), capacity, **settings)


def test_what_is_reserved_is_left_to_the_critical_class() -> None:
    """Of a hundred the others together get eighty, and the critical class the twenty that are reserved for it."""
    shedder = alone()

    assert 80 == sum(admitted(shedder, rank, 100) for rank in (GET, POST, TEST))
    assert 20 == admitted(shedder, CRITICAL, 100)


def test_the_critical_class_may_have_everything() -> None:
    """Alone it gets the whole capacity: its share first, and then what all may have."""
    assert 100 == admitted(alone(), CRITICAL, 150)


def test_more_than_one_class_may_have_a_share() -> None:
    """With a half and a quarter reserved, what is left for the others is a quarter."""
    shedder = alone(reserved={"critical": 0.5, "POST": 0.25})

    assert 25 == admitted(shedder, TEST, 100)
    assert 25 == admitted(shedder, POST, 100)
    assert 50 == admitted(shedder, CRITICAL, 100)


def test_a_refusal_says_when_to_come_again() -> None:
    """It is a 503 with its layer's name, and a wait of at least the minute after which there is room."""
    shedder = alone()
    admitted(shedder, GET, 80)
    refusal = shedder.enter(Arrival("", GET, 0))

    assert isinstance(refusal, ShedRefusal)
    assert ("fleet", 503) == (refusal.layer, refusal.status)
    assert 60 <= (refusal.retry_after or 0) < 120


def test_what_is_given_back_can_be_had_again() -> None:
    """The eighty-first of eighty is admitted after one of them was refused by a later layer."""
    shedder = alone()
    charge = shedder.enter(Arrival("", GET, 0))
    admitted(shedder, GET, 79)
    assert 0 == admitted(shedder, GET, 1)

    assert isinstance(charge, Charge)
    charge.give_back(0)
    assert 1 == admitted(shedder, GET, 2)


def test_nodes_share_the_capacity(make_agent: MakeAgent, redis_server: RedisServer) -> None:
    """Two nodes that flood with the class GET together admit no more than what is not reserved."""
    agents = [make_agent(redis_server.url, policy="strict") for _ in range(2)]
    shedders = [FleetShedder(agent, "100/hour") for agent in agents]
    total = 0

    def flood() -> bool:
        nonlocal total
        total += sum(admitted(shedder, GET, 5) for shedder in shedders)
        return total >= 80

    eventually(flood, "all that is not reserved")
    for shedder in shedders:
        total += admitted(shedder, GET, 50)

    assert 80 == total


def test_a_node_that_was_never_connected_serves(make_agent: MakeAgent) -> None:
    """Without a hub from the beginning a node admits critical requests within the capacity, and does not refuse all."""
    shedder = FleetShedder(make_agent(f"redis://127.0.0.1:{free_port()}/0", stop_timeout=0.0), "100/hour")

    assert 0 < admitted(shedder, CRITICAL, 200) <= 200


@pytest.mark.slow
def test_a_partitioned_node_goes_on_with_what_it_did(make_agent: MakeAgent, own_redis: RedisServer) -> None:
    """After its lease is over a node admits of each class as much as in its fullest window before, and no more."""
    agent = make_agent(own_redis.url, lease_ttl=1.5, exchange_timeout=0.5, policy="strict")
    shedder = FleetShedder(agent, "100/second")
    eventually(lambda: admitted(shedder, GET, 1) == 1, "the first line")
    own_redis.pause()
    eventually(lambda: agent.health().state == "partitioned", "the end of the lease")
    later = 10**6 * SECOND  # a window of its own, in which the limit itself admits nothing
    once_more = admitted(shedder, GET, 500, later)
    own_redis.resume()

    assert 1 <= once_more <= 100
    assert 0 == admitted(shedder, TEST, 500, later)


class TestRemembered:
    """Claims about the admissions of a node without its hub."""

    def test_as_much_as_in_the_fullest_of_the_last_windows(self) -> None:
        """After windows with three and with five, a window without the hub has room for five."""
        memory = Remembered(SECOND)
        for window, number in enumerate((3, 5)):
            for _ in range(number):
                memory.admitted(window * SECOND)

        assert 5 == sum(memory.has_room(2 * SECOND) for _ in range(20))
        assert 5 == sum(memory.has_room(3 * SECOND) for _ in range(20))

    def test_what_the_limit_admits_counts(self) -> None:
        """The admissions by the limit in the same window are part of it: of five, two are left after three."""
        memory = Remembered(SECOND)
        for _ in range(5):
            memory.admitted(0)
        for _ in range(3):
            memory.admitted(SECOND)

        assert 2 == sum(memory.has_room(SECOND) for _ in range(20))

    def test_windows_without_the_hub_are_not_remembered(self) -> None:
        """An admission without the hub does not become the measure of those that may be."""
        memory = Remembered(SECOND)
        memory.admitted(0)
        for window in range(1, 30):
            assert 1 == sum(memory.has_room(window * SECOND) for _ in range(20))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the child only counts, and leaves
def test_a_forked_child_has_admitted_nothing() -> None:
    """It remembers nothing of what its parent did, and waits for no lock that a thread of its parent's held."""
    shedder = alone()
    memory = shedder.memories[0]
    for _ in range(3):
        memory.admitted(0)
    with memory._lock:  # as another thread does at the time of the fork
        child = os.fork()
        if not child:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(20)  # ends what waits for the lock
            os._exit(sum(memory.has_room(60 * SECOND) for _ in range(20)))

    assert 0 == exit_code_of(child)
    assert 3 == sum(memory.has_room(60 * SECOND) for _ in range(20))


@pytest.mark.parametrize(
    ("capacity", "settings", "told"),
    [
        ("100/minute", {"reserved": {}}, "map names"),
        ("100/minute", {"reserved": {"critical": 1.0}}, "between 0 and 1"),
        ("100/minute", {"reserved": {"critical": 0.001}}, "less than one request"),
        ("100/minute", {"reserved": {"critical": 0.6, "POST": 0.4}}, "for the other classes"),
        ("100/minute", {"reserved": {"critcal": 0.5}}, "did you mean 'critical'"),
        (7, {}, "1000/second"),
    ],
)
def test_settings_that_make_no_sense_are_told(capacity: Any, settings: dict[str, Any], told: str) -> None:
    """Shares that are none, too small, or leave nothing, and a capacity that is no limit, are errors that say so."""
    with pytest.raises(InvalidSetting, match=told):
        alone(capacity, **settings)


def test_an_agent_that_is_none_is_told() -> None:
    """A URL in place of the agent is an error that says what to pass."""
    with pytest.raises(InvalidSetting, match="is no Agent"):
        FleetShedder("redis://", "100/minute", classes=TrafficClasses())  # type: ignore[arg-type]  # what is tested
