"""Goal: hooks are told what happens, and whatever they do, nobody who decides notices.

Method: hooks that write down what they are told, at looks that the test asks for; one real thread, one real fork.
"""

from __future__ import annotations

import gc
import logging
import os
import threading
import weakref

import pytest

from reconverge import Agent, Health
from reconverge.clock import ManualClock
from reconverge.hooks import ExchangeFailed, HealthChanged, LogHooks, Look, NearLimit, Refused, SilentHooks, key_hash
from tests.support.agents import introduce
from tests.support.fixtures.agents import MakeAgent
from tests.support.hooked import hooked
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

KEY = "ada@example.com"


class Diary(SilentHooks):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.events: list[object] = []
        self.looks = 0
        self.threads: set[str] = set()

    def refused(self, event: Refused, /) -> None:
        self.events.append(event)

    def would_have_refused(self, event: Refused, /) -> None:
        self.events.append(("would", event))

    def near_limit(self, event: NearLimit, /) -> None:
        self.events.append(event)

    def degraded(self, event: HealthChanged, /) -> None:
        self.events.append(("degraded", event.before, event.state))

    def recovered(self, event: HealthChanged, /) -> None:
        self.events.append(("recovered", event.before, event.state))

    def exchange_failed(self, event: ExchangeFailed, /) -> None:
        self.events.append(event.kind)

    def looked(self, event: Look, /) -> None:
        self.looks += 1
        self.threads.add(threading.current_thread().name)


class Clumsy(SilentHooks):
    """Fails whenever it is told something."""

    def refused(self, event: Refused, /) -> None:
        raise RuntimeError(f"about {event.limit}")


def test_refusals_are_told_once_with_their_number() -> None:
    """Since the hooks were there, and since the last look; those in shadow are told as what they are."""
    agent = Agent("memory://", clock=ManualClock())
    limiter, diary = agent.limit("login", "1/minute"), Diary()
    limiter.allow(KEY)
    limiter.allow(KEY)
    with hooked(agent, diary):
        for count in (2, 0, 1):
            for _ in range(count):
                limiter.allow(KEY)
            agent.look()
        limiter.switch("shadow")
        limiter.allow(KEY)
        agent.look()
    limiter.switch("on")
    limiter.allow(KEY)
    agent.look()

    assert [Refused("login", 2), Refused("login", 1), ("would", Refused("login", 1))] == diary.events


def test_a_hub_brings_the_keys_and_its_loss_is_told(own_redis: RedisServer, make_agent: MakeAgent) -> None:
    """Whose keys are near and refused; that exchanges fail, and that the agent is worse off, and better again."""
    agent = make_agent(own_redis.url, exchange_timeout=0.5)
    limiter, diary = agent.limit("login", "10/hour", algorithm="fixed-window"), Diary()

    def told(what: object) -> None:
        def is_told() -> bool:
            limiter.allow(KEY)
            agent.look()
            return what in diary.events

        eventually(is_told, str(what))

    def refused_keys() -> set[str]:
        limiter.allow(KEY)
        agent.look()
        return {key for event in diary.events if isinstance(event, Refused) for key in event.keys}

    with hooked(agent, diary):
        introduce(limiter, KEY, "bob")
        told(NearLimit("login", 1, (KEY,)))

        eventually(lambda: refused_keys() == {KEY}, "the key that is refused")
        own_redis.pause()
        told("timeout")
        told(("degraded", "ready", "degraded"))
        own_redis.resume()
        told(("recovered", "degraded", "ready"))


def test_an_orderly_stop_and_a_new_start_are_no_alarm(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """A deploy stops an agent that was ready; hooks hear neither of `degraded` nor of `recovered`."""
    agent = make_agent(redis_server.url)
    limiter, diary = agent.limit("login", "10/hour"), Diary()
    with hooked(agent, diary):
        for _ in range(2):
            limiter.allow(KEY)
            eventually(lambda: agent.health().state == "ready", "an answer of the hub")
            agent.look()
            agent.stop()
            agent.look()

            assert "starting" == agent.health().state
    assert [] == [event for event in diary.events if isinstance(event, tuple)]


def test_a_hook_that_fails_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """Decisions go on, other hooks are told, and it is logged once."""
    agent = Agent("memory://", clock=ManualClock())
    limiter, diary = agent.limit("login", "1/minute"), Diary()
    with hooked(agent, Clumsy(), diary):
        for _ in range(3):
            limiter.allow(KEY)
            agent.look()

    assert [Refused("login", 1)] * 2 == diary.events
    assert 2 == agent._hook_dispatcher.failures
    assert ["reconverge: the hook refused of Clumsy failed; later failures are only counted"] == [
        record.message for record in caplog.records
    ]


@pytest.mark.slow
def test_the_agent_looks_by_itself_on_a_thread_of_its_own() -> None:
    """It looks as long as there are hooks; and the thread ends with the agent."""
    agent, diary = Agent("memory://"), Diary()
    agent.add_hooks(diary)
    eventually(lambda: diary.looks, "a look")
    reference, thread = weakref.ref(agent), agent._hook_dispatcher._thread
    del agent

    def is_gone() -> bool:
        gc.collect()
        return reference() is None and thread is not None and not thread.is_alive()

    eventually(is_gone, "the end of the thread")

    assert {"reconverge-dispatcher"} == diary.threads


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the child only counts, and leaves
class Sick(Agent):
    """An agent whose health cannot be told, for once."""

    asked = 0

    def health(self) -> Health:
        self.asked += 1
        if self.asked == 2:
            raise LookupError("for once")
        return super().health()


@pytest.mark.slow
def test_a_look_that_fails_is_not_the_last(caplog: pytest.LogCaptureFixture) -> None:
    """It is counted and logged, and a second later somebody looks again."""
    agent, diary = Sick("memory://"), Diary()
    agent.add_hooks(diary)

    eventually(lambda: diary.looks > 0, "another look")
    agent.remove_hooks(diary)

    assert 1 == agent._hook_dispatcher.failures
    assert ["reconverge: reading the counters for hooks failed; the next attempt follows"] == [
        record.message for record in caplog.records
    ]


def test_a_forked_child_looks_for_itself() -> None:
    """With a thread of its own, from counts of zero."""
    agent, diary = Agent("memory://", clock=ManualClock()), Diary()
    limiter = agent.limit("login", "1/minute")
    with hooked(agent, diary):
        for _ in range(5):
            limiter.allow(KEY)
        agent.look()
        told = list(diary.events)
        child = os.fork()
        if not child:
            diary.events.clear()
            limiter.allow(KEY)
            limiter.allow(KEY)
            agent.look()
            os._exit(0 if diary.events == [Refused("login", 1)] and agent._hook_dispatcher._thread is not None else 1)
        _, status = os.waitpid(child, 0)

    assert [Refused("login", 4)] == told
    assert 0 == os.waitstatus_to_exitcode(status)


def logged(caplog: pytest.LogCaptureFixture, *events: Refused, **settings: object) -> list[logging.LogRecord]:
    caplog.set_level(logging.INFO)
    hooks = LogHooks(**settings)  # type: ignore[arg-type]  # whatever the test says
    for event in events:
        hooks.refused(event)
    return caplog.records


def test_a_log_shows_hashes_of_keys(caplog: pytest.LogCaptureFixture) -> None:
    """By which whoever knows the key finds it, and nobody else; its facts are there for whoever collects logs."""
    (record,) = logged(caplog, Refused("login", 3, (KEY,)), secret=b"of the service")
    facts = vars(record)

    assert ("login", 3, [key_hash(KEY, secret=b"of the service")]) == (facts["limit"], facts["count"], facts["keys"])
    assert 12 == len(facts["keys"][0])
    assert KEY not in str(facts)
    assert key_hash(KEY) != key_hash(KEY, secret=b"of the service")


def test_a_log_shows_keys_to_who_wants_that(caplog: pytest.LogCaptureFixture) -> None:
    """And no more than a few, however many there are."""
    (record,) = logged(caplog, Refused("login", 99, (KEY, *map(str, range(98)))), show_keys=True)

    assert [KEY, *map(str, range(9))] == vars(record)["keys"]


def test_a_log_says_the_same_thing_seldom(caplog: pytest.LogCaptureFixture) -> None:
    """Of each limit once in so many seconds, to the nanosecond."""
    clock = ManualClock()
    caplog.set_level(logging.INFO)
    hooks = LogHooks(every=60.0, clock=clock)
    hooks.refused(Refused("login", 1))
    hooks.refused(Refused("api", 1))
    clock.advance_ns(59_999_999_999)
    hooks.refused(Refused("login", 2))
    clock.advance_ns(1)
    hooks.refused(Refused("login", 3))

    assert [("login", 1), ("api", 1), ("login", 3)] == [
        (vars(record)["limit"], vars(record)["count"]) for record in caplog.records
    ]


def test_a_log_tells_of_health_and_failures(caplog: pytest.LogCaptureFixture) -> None:
    """Worse as a warning, better as information, each with its grounds."""
    caplog.set_level(logging.INFO)
    hooks = LogHooks()
    hooks.exchange_failed(ExchangeFailed("timeout", 3))
    hooks.degraded(HealthChanged("degraded", "ready", ("shard 0: no answer",)))
    hooks.recovered(HealthChanged("ready", "degraded", ()))
    hooks.near_limit(NearLimit("login", 1))
    hooks.would_have_refused(Refused("login", 1))

    assert ["WARNING", "WARNING", "INFO", "INFO", "INFO"] == [record.levelname for record in caplog.records]
    assert "shard 0: no answer" in caplog.text
