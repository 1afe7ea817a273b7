"""Goal: what one node has used up, all others hear of at once by way of a broker; and nothing depends on that.

Method: agents that exchange once in a minute at a real Redis, and hint by way of a real mosquitto, which is killed, and
to which somebody else writes.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from secrets import token_hex
from typing import Any

import aiomqtt
import pytest

from reconverge import Agent
from reconverge.errors import HubUnavailable
from reconverge.hints import HintsStats
from reconverge.hubs import HubSettings
from reconverge_sync.mqtt.hints import MqttHints
from tests.brokers import Mosquitto
from tests.hubs.conftest import PASSWORD, QUOTED_PASSWORD, GuardedMosquitto
from tests.servers import RedisServer, free_port
from tests.unit.test_hints import poison
from tests.waiting import eventually, eventually_in_loop

MINUTE_S = 60.0
LIMIT = "100/day"
MESSAGES = 1000


class Fleet:
    """Agents that all know one key, and how many each has admitted of it."""

    def __init__(self, number: int, hub: str, hints: str | None, **settings: Any) -> None:
        usual: dict[str, Any] = {"namespace": token_hex(4), "sync_interval": MINUTE_S, "min_sync_interval": 0.05}
        self.namespace = usual["namespace"]
        self.agents = [Agent(hub, hints=hints, sigterm=False, **(usual | settings)) for _ in range(number)]
        self.limiters = [agent.limit("login", LIMIT) for agent in self.agents]
        self.admitted = [0] * number

    def ask(self, index: int, times: int = 1) -> int:
        """How many of so many requests that agent admits."""
        admitted = sum(self.limiters[index].allow("ada") for _ in range(times))
        self.admitted[index] += admitted
        return admitted

    def all_know(self) -> bool:
        """Whether every agent knows what all have admitted."""
        return [sum(self.admitted)] * len(self.agents) == [limiter.usage("ada").total for limiter in self.limiters]

    def meet(self) -> None:
        """Have all be connected, and ask the hub for the key; nobody but the first will ask for a part of it."""
        for agent, limiter in zip(self.agents, self.limiters, strict=True):
            agent.start()
            limiter.test("ada")
        eventually(lambda: all(limiter.usage("ada").staleness < MINUTE_S for limiter in self.limiters), "all know it")
        eventually(lambda: all(hints(agent).connected for agent in self.agents), "all are connected")

    def use_up(self) -> None:
        """Have the first agent admit all that there is, and tell of it."""
        eventually(lambda: self.ask(0, 100) == 0 and self.admitted[0] == 100, "it is used up")
        eventually(lambda: hints(self.agents[0]).told, "it is told of")

    def stop(self) -> None:
        """All of them."""
        for agent in self.agents:
            agent.stop()


def hints(agent: Agent) -> HintsStats:
    """What an agent says of hints."""
    stats = agent.stats().hints
    assert stats is not None
    return stats


@contextmanager
def fleet_of(number: int, hub: str, broker: str, **settings: Any) -> Iterator[Fleet]:
    """So many agents, which know each other."""
    fleet = Fleet(number, hub, broker, **settings)
    try:
        fleet.meet()
        yield fleet
    finally:
        fleet.stop()


@pytest.mark.parametrize("query", ["", "?protocol=5"])
def test_all_hear_at_once_what_one_has_used_up(redis_server: RedisServer, mosquitto: Mosquitto, query: str) -> None:
    """Long before they would exchange by themselves."""
    with fleet_of(4, redis_server.url, f"{mosquitto.url}{query}") as fleet:
        fleet.use_up()

        eventually(fleet.all_know, "all know", seconds=MINUTE_S / 2)
        assert [0, 1, 1, 1] == [hints(agent).heeded for agent in fleet.agents]


def test_hints_travel_encrypted_too(redis_server: RedisServer, guarded_mosquitto: GuardedMosquitto) -> None:
    """By a user who may write what the documents say; the password is shown nowhere."""
    with fleet_of(2, redis_server.url, guarded_mosquitto.url()) as fleet:
        fleet.use_up()

        eventually(fleet.all_know, "all know", seconds=MINUTE_S / 2)
        channel = MqttHints(guarded_mosquitto.url(), HubSettings("shop", 1.0))
        assert not any(secret in repr(channel) for secret in (PASSWORD, QUOTED_PASSWORD))


def test_one_topic_is_all_that_a_user_needs(redis_server: RedisServer, tmp_path: Path) -> None:
    """Whoever has no other hub at the broker; and who may not even do that is told why."""
    (tmp_path / "acl").write_text("topic readwrite +/rc/v1/hints\n")
    with (
        Mosquitto("allow_anonymous true", f"acl_file {tmp_path / 'acl'}") as broker,
        fleet_of(2, redis_server.url, broker.url) as fleet,
    ):
        fleet.use_up()

        eventually(fleet.all_know, "all know", seconds=MINUTE_S / 2)


def test_a_broker_that_is_killed_changes_nothing(
    redis_server: RedisServer, own_mosquitto: Mosquitto, caplog: pytest.LogCaptureFixture
) -> None:
    """Each says so once, and goes on as without hints; when it is back, so are the hints."""
    caplog.set_level(logging.WARNING, "reconverge")
    with fleet_of(4, redis_server.url, own_mosquitto.url, sync_interval=0.5) as fleet:
        own_mosquitto.kill()
        eventually(lambda: not any(hints(agent).connected for agent in fleet.agents), "no connection")
        eventually(lambda: all(sum(hints(agent).failures.values()) > 1 for agent in fleet.agents), "attempts")
        fleet.ask(0, 5)
        eventually(fleet.all_know, "exchanges go on")
        assert [{}] * 4 == [agent.stats().exchanges[0].failures for agent in fleet.agents]
        assert 4 == sum("no hints by way of" in record.getMessage() for record in caplog.records)

        own_mosquitto.start()
        eventually(lambda: all(hints(agent).connected for agent in fleet.agents), "connections")
        fleet.use_up()
        eventually(lambda: all(hints(agent).heard for agent in fleet.agents[1:]), "hints")
        assert [0] * 4 == [agent.stats().bugs for agent in fleet.agents]


def test_poison_changes_nothing(redis_server: RedisServer, mosquitto: Mosquitto) -> None:
    """Each message is counted, if it is looked at; hints that can be read are heard as before."""
    random = Random(1)

    async def attack(topic: str) -> None:
        async with aiomqtt.Client("127.0.0.1", mosquitto.port) as attacker:
            await attacker.publish(topic, b"x" * 900_000, qos=1, retain=True)
            for _ in range(MESSAGES):
                await attacker.publish(topic, poison(random), qos=1)

    with fleet_of(2, redis_server.url, mosquitto.url) as fleet:
        exchanges = max(agent.stats().exchanges[0].exchanges for agent in fleet.agents)
        asyncio.run(attack(f"{fleet.namespace}/rc/v1/hints"))
        eventually(lambda: all(heard(agent) > MESSAGES // 2 for agent in fleet.agents), "poison")
        # Some of it could be read, and told of a key that is known.
        assert all(agent.stats().exchanges[0].exchanges <= exchanges + 20 for agent in fleet.agents)
        assert [{}, {}] == [hints(agent).failures for agent in fleet.agents]
        eventually(fleet.all_know, "nothing was counted twice")
        fleet.use_up()

        eventually(fleet.all_know, "all know", seconds=MINUTE_S / 2)


def heard(agent: Agent) -> int:
    """How many messages have come to it, whatever became of them."""
    return hints(agent).heard + sum(hints(agent).rejected.values())


def test_what_a_broker_has_kept_is_of_another_time(mosquitto: Mosquitto) -> None:
    """Nobody of ours has anything kept; so whoever connects hears what is told from then on, and nothing else."""
    namespace = token_hex(4)

    async def tried() -> list[bytes]:
        heard: list[bytes] = []
        troubles: list[HubUnavailable | None] = []
        async with aiomqtt.Client("127.0.0.1", mosquitto.port) as attacker:
            await attacker.publish(f"{namespace}/rc/v1/hints", b"kept", qos=1, retain=True)
        channel = MqttHints(mosquitto.url, HubSettings(namespace, 5.0))
        channel.open(heard.append, troubles.append)
        await eventually_in_loop(lambda: troubles == [None], "a connection")
        channel.tell(b"told")
        await eventually_in_loop(lambda: b"told" in heard, "what was told")
        await channel.close()
        return heard

    assert [b"told"] == asyncio.run(tried())


def test_agents_in_one_loop_hint_as_well(redis_server: RedisServer, mosquitto: Mosquitto) -> None:
    """As tasks of the application's own."""

    async def tried() -> None:
        fleet = Fleet(2, redis_server.url, mosquitto.url)
        first, second = fleet.agents
        async with first, second:
            fleet.limiters[1].test("ada")
            await eventually_in_loop(lambda: all(hints(agent).connected for agent in fleet.agents), "connections")
            await eventually_in_loop(lambda: fleet.limiters[1].usage("ada").staleness < MINUTE_S, "the second knows it")
            await eventually_in_loop(lambda: fleet.ask(0, 100) == 0 and fleet.admitted[0] == 100, "it is used up")
            await eventually_in_loop(fleet.all_know, "all know", seconds=MINUTE_S / 2)

    asyncio.run(tried())


def test_a_fork_hints_by_a_connection_of_its_own(redis_server: RedisServer, mosquitto: Mosquitto) -> None:
    """What it uses up the parent hears, whose connection goes on."""
    with fleet_of(2, redis_server.url, mosquitto.url) as fleet:
        child = os.fork()
        if child == 0:
            try:
                agent = fleet.agents[0]
                agent.start()
                eventually(lambda: hints(agent).connected, "a connection")
                fleet.use_up()
                agent.stop(30.0)
            finally:
                os._exit(0)
        before = [sum(hints(agent).failures.values()) for agent in fleet.agents]
        os.waitpid(child, 0)

        eventually(lambda: all(hints(agent).heeded for agent in fleet.agents), "the parent's agents hear of it")
        assert before == [sum(hints(agent).failures.values()) for agent in fleet.agents]


def test_each_reason_has_a_word(guarded_mosquitto: GuardedMosquitto) -> None:
    """Whoever looks at the statistics learns what to mend."""

    def kind(url: str) -> str:
        async def tried() -> str:
            troubles: list[HubUnavailable | None] = []
            channel = MqttHints(url, HubSettings("shop", 1.0))
            channel.open(lambda _: None, troubles.append)
            await eventually_in_loop(lambda: troubles, "a problem")
            await channel.close()
            problem = troubles[0]
            assert problem is not None
            assert "hunter2" not in f"{problem!r}{problem}"
            return problem.kind

        return asyncio.run(tried())

    assert "refused" == kind(f"mqtt://127.0.0.1:{free_port()}")
    assert "auth" == kind(guarded_mosquitto.url(password="hunter2"))  # noqa: S106
    assert "tls" == kind(guarded_mosquitto.url().partition("?")[0])
