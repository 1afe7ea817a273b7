"""Goal: the doctor says what is wrong with a broker of MQTT, in words of its own for each, and leaves nothing there.

Method: real brokers: in the clear, over TLS with an ACL, with limits that are too tight, and with agents at work.
"""

from __future__ import annotations

import asyncio

import aiomqtt

from reconverge import Agent
from tests.support.brokers import Mosquitto
from tests.support.commands.checked import check
from tests.support.fixtures.servers import PASSWORD, GuardedMosquitto
from tests.support.servers import free_port
from tests.support.waiting import eventually


async def _retained(broker: Mosquitto) -> list[str]:
    """The topics of whatever the broker keeps."""
    topics: list[str] = []
    async with aiomqtt.Client("127.0.0.1", broker.port) as client:
        await client.subscribe("#")
        await client.publish("the/end", b"", qos=1)
        async for message in client.messages:  # what is kept comes first
            if str(message.topic) == "the/end":
                break
            topics += [str(message.topic)] * message.retain
    return topics


def test_nothing_is_left_behind_and_nobody_is_disturbed() -> None:
    """An agent keeps its ledger through it, and the broker keeps no more than before."""
    with Mosquitto() as broker, Agent(f"{broker.url}?tenure=3", namespace="shop", sync_interval=0.05) as agent:
        login = agent.limit("login", "100/day")
        eventually(lambda: agent.ready and login.allow("ada"), "the agent is elected")
        kept = [f"shop/rc/v1/{each}" for each in ("0/claims", f"keymark/{b'login'.hex()}", "keymark/all")]
        eventually(lambda: sorted(asyncio.run(_retained(broker))) == kept, "its claim and its marks are kept")

        checked = check(f"{broker.url}?tenure=3")

        assert (0, []) == (checked.status, checked.at("problem") + checked.at("warning"))
        assert "an agent keeps the ledger, and answers" == checked.only("leader")["fact"]
        assert kept == sorted(asyncio.run(_retained(broker)))
        assert 0 == agent.stats().exchanges[0].rebirths


def test_agents_that_name_another_number_of_shards_are_noticed() -> None:
    """They would fail to see each other's counts, and nothing else notices."""
    with Mosquitto() as broker, Agent(f"{broker.url}?tenure=3&shards=3", namespace="shop") as agent:
        agent.limit("login", "100/day")
        eventually(lambda: agent.ready, "the agent is elected")

        fewer, more = check(f"{broker.url}?tenure=3"), check(f"{broker.url}?tenure=3&shards=4")

        assert "the agents have more shards than the 1 of this URL" == fewer.findings("leader")[0]["fact"]
        assert "of 4 shards, 1 have no leader" == more.only("leader")["fact"]


def test_whatever_is_in_the_way_is_named(guarded_mosquitto: GuardedMosquitto, mosquitto: Mosquitto) -> None:
    """And how to mend it; the password is in none of it."""
    good = guarded_mosquitto.url()
    found = {
        "nobody there": check(f"mqtt://127.0.0.1:{free_port()}"),
        "no such host": check("mqtt://nosuch.invalid"),
        "wrong password": check(guarded_mosquitto.url(password="hunter2")),  # noqa: S106
        "may do nothing": check(guarded_mosquitto.url(user="stranger")),
        "unknown authority": check(good.partition("?")[0]),
        "no TLS there": check(f"mqtts://127.0.0.1:{mosquitto.port}"),
        "TLS there": check(f"mqtt://127.0.0.1:{guarded_mosquitto.broker.port}"),
    }
    said = {reason: checked.at("problem") for reason, checked in found.items()}

    assert {
        "nobody there": ["reached"],
        "no such host": ["reached"],
        "wrong password": ["login"],
        "may do nothing": ["permission"],
        "unknown authority": ["reached"],
        "no TLS there": ["reached"],
        "TLS there": ["reached"],
    } == said
    assert {1} == {checked.status for checked in found.values()}
    assert "topic readwrite shop/rc/v1/#" in found["may do nothing"].only("permission")["remedy"]
    assert not any(secret in str(checked.report) for secret in (PASSWORD, "hunter2") for checked in found.values())


def test_a_broker_that_takes_no_large_letters_or_keeps_none_is_named() -> None:
    """Small ones would pass, and whole batches vanish without a word."""
    with Mosquitto("allow_anonymous true", "message_size_limit 10000") as small:
        assert "message_size_limit" in check(small.url).only("size")["remedy"]
