"""Goal: whenever an agent is stopped, it says everything, and goes on when somebody decides again: in one voice.

Method: a real Redis that knows what was admitted, and a pace at which only the last words can have said it.
"""

from __future__ import annotations

import logging
import threading

import pytest

from reconverge import Agent
from tests.support.agents import (
    HOUR_S,
    NEVER_FULL,
    admitted_of,
    exchange_threads,
    exchanges_of,
    introduce,
    net_at,
    node_of,
)
from tests.support.fixtures.agents import MakeAgent
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

DECIDERS = 4
STOPS = 20


def test_stopping_twice_is_stopping_once(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """The second time there is nothing to say, and nobody to say it."""
    agent = make_agent(redis_server.url, sync_interval=HOUR_S)
    admitted_of(agent.limit("login", NEVER_FULL), 10)
    agent.stop()
    stopped = agent.stats().exchanges[0]

    agent.stop()

    assert stopped.exchanges == agent.stats().exchanges[0].exchanges
    assert 10 == net_at(redis_server.url)


def test_stopping_what_never_started_does_nothing(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """No thread is started to say that there is nothing to say."""
    agent = make_agent(redis_server.url)

    agent.stop()

    assert 0 == exchanges_of(agent)
    assert [] == exchange_threads()


def test_decisions_go_on_after_a_stop(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """The first of them brings the thread back."""
    agent = make_agent(redis_server.url)
    login = agent.limit("login", NEVER_FULL)
    introduce(login)
    agent.stop()
    assert [] == exchange_threads()

    login.allow("ada")

    assert 1 == len(exchange_threads())
    _one_more_exchange(agent)


def test_a_decision_after_a_stop_is_logged(
    redis_server: RedisServer, make_agent: MakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, though each request stops it again, and not for an agent that is started again on purpose."""
    caplog.set_level(logging.WARNING, "reconverge")
    agent = make_agent(redis_server.url)
    login = agent.limit("login", NEVER_FULL)
    introduce(login)
    agent.stop()
    agent.start()
    login.allow("ada")
    before = caplog.text.count("this agent was stopped")
    agent.stop()

    for key in ("ada", "bob", "eve"):
        login.allow(key)
    for _ in range(2):
        agent.stop()
        login.allow("ada")

    assert 0 == before
    assert 1 == caplog.text.count("stop the agent after the last request")


def test_every_start_has_a_new_name(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """Under the old one the small counts of the new start would be taken for old news."""
    agent = make_agent(redis_server.url)
    names = set()

    for _ in range(5):
        with agent:
            eventually(lambda: agent.ready, "an answer")
            names.add(node_of(agent))

    assert 5 == len(names)


def test_nothing_is_lost_or_doubled_over_many_starts(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """The hub knows the exact number after each stop."""
    agent = make_agent(redis_server.url, sync_interval=HOUR_S)
    login = agent.limit("login", NEVER_FULL)
    admitted = 0

    for start in range(5):
        admitted += introduce(login, f"key {start}")
        assert 7 == admitted_of(login, 7, f"key {start}")
        admitted += 7 + admitted_of(login, 7, "ada")
        agent.stop()

        assert admitted == net_at(redis_server.url)


@pytest.mark.slow
def test_nothing_is_lost_when_decisions_fall_into_the_last_words(
    redis_server: RedisServer, make_agent: MakeAgent
) -> None:
    """Threads decide while another one stops the agent, again and again; there is never a second voice."""
    agent = make_agent(redis_server.url)
    login = agent.limit("login", NEVER_FULL)
    admitted = [0] * DECIDERS
    stopped = threading.Event()

    def decide(number: int) -> None:
        while not stopped.is_set():
            admitted[number] += admitted_of(login, 50, f"key {number}")

    threads = [threading.Thread(target=decide, args=(number,)) for number in range(DECIDERS)]
    for thread in threads:
        thread.start()
    for _ in range(STOPS):
        _one_more_exchange(agent)
        agent.stop()
    stopped.set()
    for thread in threads:
        thread.join()
    agent.stop()

    assert sum(admitted) == net_at(redis_server.url)
    assert 0 == agent.stats().bugs
    assert {} == agent.stats().exchanges[0].failures
    assert [] == exchange_threads()


def test_a_stop_that_could_not_be_waited_for_leaves_one_voice(own_redis: RedisServer, make_agent: MakeAgent) -> None:
    """The hub hangs, the stop gives up, decisions bring a new thread: it begins when the old one is gone."""
    agent = make_agent(own_redis.url, exchange_timeout=0.5)
    login = agent.limit("login", NEVER_FULL)
    admitted = introduce(login)
    own_redis.pause()
    admitted += admitted_of(login, 10)

    agent.stop(timeout=0.0)
    admitted += admitted_of(login, 10)
    own_redis.resume()
    eventually(lambda: admitted == net_at(own_redis.url), "all that was admitted")
    agent.stop()

    assert 0 == agent.stats().bugs
    assert admitted == net_at(own_redis.url)
    eventually(lambda: not exchange_threads(), "the end of both threads")


def test_what_a_stop_could_not_say_is_said_after_the_next_start(own_redis: RedisServer, make_agent: MakeAgent) -> None:
    """The hub was away when the last words were due; a decision brings the thread back, and the thread all counts."""
    agent = make_agent(own_redis.url, sync_interval=0.05)
    login = agent.limit("login", NEVER_FULL)
    admitted = introduce(login, "ada", "bob")
    own_redis.kill()
    admitted += admitted_of(login, 10, "ada") + admitted_of(login, 10, "bob")
    agent.stop()
    own_redis.start()

    admitted += admitted_of(login, 1, "ada")

    assert agent.stats().running
    eventually(lambda: admitted == net_at(own_redis.url), "all that was admitted")


def _one_more_exchange(agent: Agent) -> None:
    exchanges = exchanges_of(agent)
    eventually(lambda: exchanges < exchanges_of(agent), "one more exchange")
