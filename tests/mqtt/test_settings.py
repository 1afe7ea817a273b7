"""Goal: settings that are published by way of a broker are obeyed by all, survive the broker, and only those are.

Method: agents at a real mosquitto, which is restarted without a memory; and whatever else somebody may post there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from secrets import token_hex

import aiomqtt
import pytest

from reconverge import Agent
from reconverge.errors import HubUnavailable
from reconverge.hub.checking.probe import trial_batch
from reconverge.hub.registry import HubSettings
from reconverge.published.settings import LimitOverride
from reconverge_sync.mqtt.hub import MqttHub
from tests.support.brokers import Mosquitto
from tests.support.published import OTHER, SECRET, known_by, login, post_to, sealed_now
from tests.support.waiting import eventually, eventually_in_loop

MAX = 100_000
MESSAGES = 1000
LIMIT = "100/day"


@contextmanager
def agents(url: str, number: int, namespace: str) -> Iterator[list[Agent]]:
    """So many nodes that obey, and have declared the limit `login`."""
    made = [
        Agent(url, namespace=namespace, sync_interval=0.05, settings_secret=SECRET, sigterm=False)
        for _ in range(number)
    ]
    try:
        for agent in made:
            agent.limit("login", LIMIT)
            agent.start()
        yield made
    finally:
        for agent in made:
            agent.stop()


def publish(url: str, payload: bytes, namespace: str) -> None:
    post_to(MqttHub(url, HubSettings(namespace, 20.0)), payload)


def quotas(fleet: list[Agent]) -> list[int]:
    """How much the limit admits on each node."""
    return [agent.limiter("login").limit.quota for agent in fleet]


@pytest.mark.parametrize("query", ["", "?protocol=5"])
def test_every_node_obeys_what_is_published(mosquitto: Mosquitto, query: str) -> None:
    """Those that are there, and those that come later."""
    namespace, url = token_hex(4), f"{mosquitto.url}{query}"
    with agents(url, 2, namespace) as fleet:
        publish(url, sealed_now(1, namespace=namespace, limits=login("50/day")), namespace)
        eventually(lambda: quotas(fleet) == [50, 50], "the first settings")
        publish(url, sealed_now(2, namespace=namespace, limits=login("40/day")), namespace)
        eventually(lambda: quotas(fleet) == [40, 40], "the second ones")
        with agents(url, 1, namespace) as late:
            eventually(lambda: quotas(late) == [40], "a newcomer obeys")


def test_a_broker_that_forgets_takes_nothing_back(own_mosquitto: Mosquitto) -> None:
    """Nodes obey on while it is away and when it is back without a memory; then one of them posts it again."""
    with agents(own_mosquitto.url, 2, "shop") as fleet:
        publish(own_mosquitto.url, sealed_now(limits=login("50/day")), "shop")
        eventually(lambda: quotas(fleet) == [50, 50], "the settings")

        own_mosquitto.kill()
        eventually(lambda: all(agent.stats().exchanges[0].failures_in_a_row for agent in fleet), "failures")
        assert [50, 50] == quotas(fleet)
        own_mosquitto.start()

        eventually(lambda: sum(known_by(agent).restored for agent in fleet), "posted again")
        with agents(own_mosquitto.url, 1, "shop") as late:
            eventually(lambda: quotas(late) == [50], "a newcomer obeys")
        assert [50, 50] == quotas(fleet)


def poison(random: Random, good: bytes) -> bytes:
    """Noise, settings that were good until they were cut or bent, and settings of others."""
    match random.randrange(4):
        case 0:
            return random.randbytes(random.randrange(1, 300))
        case 1:
            return good[: random.randrange(1, len(good))]
        case 2:
            bent = bytearray(good)
            bent[random.randrange(len(bent))] ^= 1 << random.randrange(8)
            return bytes(bent)
        case _:
            return sealed_now(random.randrange(1, 10), secret=OTHER, limits={"login": LimitOverride("1/day")})


def test_poison_changes_nothing(mosquitto: Mosquitto) -> None:
    """Each is counted as rejected if it is read; what is in force stays so, and the next good settings are obeyed."""
    namespace, random = token_hex(4), Random(1)
    good = sealed_now(3, namespace=namespace, limits=login("50/day"))

    async def attack() -> None:
        async with aiomqtt.Client("127.0.0.1", mosquitto.port) as attacker:
            for number in range(MESSAGES):
                await attacker.publish(topic, poison(random, good), qos=1, retain=number % 2 == 0)
            await attacker.publish(topic, b"x" * 900_000, qos=1, retain=True)

    topic = f"{namespace}/rc/v1/settings"
    with agents(mosquitto.url, 2, namespace) as fleet:
        publish(mosquitto.url, good, namespace)
        eventually(lambda: quotas(fleet) == [50, 50], "good settings")
        asyncio.run(attack())
        eventually(lambda: all(known_by(agent).rejected.get("too-large") for agent in fleet), "the last is read")
        assert [50, 50] == quotas(fleet)
        assert [3, 3] == [known_by(agent).version for agent in fleet]
        assert [0, 0] == [agent.stats().bugs for agent in fleet]
        publish(mosquitto.url, sealed_now(4, namespace=namespace, limits=login("40/day")), namespace)
        eventually(lambda: quotas(fleet) == [40, 40], "the next good settings")


async def test_no_more_than_its_share_is_kept_of_something_long(mosquitto: Mosquitto) -> None:
    """However long it is; and whoever would post such a thing is told."""
    namespace = token_hex(4)
    hub = MqttHub(mosquitto.url, HubSettings(namespace, 20.0))
    async with aiomqtt.Client("127.0.0.1", mosquitto.port) as attacker:
        await attacker.publish(f"{namespace}/rc/v1/settings", b"x" * 5_000_000, qos=1, retain=True)
    try:
        read = await hub.read(bytes_max=10_000_000)
        with pytest.raises(HubUnavailable) as caught:
            await hub.post(b"x" * 200_000, keep_s=1.0)
    finally:
        await hub.close()
    kept, problem = len(read or b""), caught.value

    assert (1 << 17) + 1 == kept
    assert "the settings have 200000 bytes" in str(problem)


def test_a_newer_broker_forgets_what_has_had_its_time(mosquitto: Mosquitto) -> None:
    """One that speaks MQTT 5: whoever comes later reads nothing."""

    async def read() -> bytes | None:
        hub = MqttHub(url, settings)
        try:
            return await hub.read(bytes_max=MAX)
        finally:
            await hub.close()

    url, settings = f"{mosquitto.url}?protocol=5", HubSettings(token_hex(4), 20.0)
    post_to(MqttHub(url, settings), b"anything", keep_s=0.2)

    eventually(lambda: asyncio.run(read()) is None, "it is forgotten")


async def test_who_only_reads_and_posts_is_not_elected(mosquitto: Mosquitto) -> None:
    """Until it exchanges: a command is there for too short a time to keep a ledger."""
    hub = MqttHub(mosquitto.url, HubSettings(token_hex(4), 20.0))
    await hub.post(b"anything", keep_s=60.0)
    membership = hub._per_loop.get()
    before = membership.servers[0].election.member
    await hub.exchange(trial_batch("node1", 1))
    after = membership.servers[0].election.member
    assert after == membership._member
    await hub.close()

    assert "" == before
    assert after


def test_a_user_who_may_not_post_is_told(tmp_path: Path) -> None:
    """Though a broker of MQTT 3.1.1 confirms what it throws away."""

    async def tried(url: str) -> list[str]:
        hub = MqttHub(url, HubSettings("shop", 1.0))
        kinds: list[str] = []
        for question in (hub.post(b"anything", keep_s=60.0), hub.read(bytes_max=MAX)):
            try:
                await question
            except HubUnavailable as problem:
                kinds.append(problem.kind)
        await hub.close()
        return kinds

    (tmp_path / "acl").write_text("topic read #\n")
    with Mosquitto("allow_anonymous true", f"acl_file {tmp_path / 'acl'}") as broker:
        assert ["permission", "permission"] == asyncio.run(tried(broker.url))


def test_a_broker_that_goes_while_somebody_posts_is_unavailable(own_mosquitto: Mosquitto) -> None:
    """Whoever posts is told, and not made to wait for ever."""

    async def tried() -> str:
        hub = MqttHub(own_mosquitto.url, HubSettings("shop", 60.0))
        await hub.read(bytes_max=MAX)
        own_mosquitto.pause()
        posting = asyncio.ensure_future(hub.post(b"anything", keep_s=60.0))
        await eventually_in_loop(lambda: hub._per_loop.get().retained.settings.waits, "it is posted")
        own_mosquitto.kill()
        try:
            await posting
        except HubUnavailable as problem:
            return problem.kind
        finally:
            await hub.close()
        return ""

    assert asyncio.run(tried()) in ("connection", "refused")
