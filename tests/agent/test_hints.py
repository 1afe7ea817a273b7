"""Goal: hints are a setting like others, and whatever goes wrong with them keeps nobody from exchanging.

Method: agents at one hub in memory, whose exchanges are made when the test says so, and channels of the test's.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from reconverge import Agent, HubUnavailable, InvalidSetting
from reconverge.hint_channel import Hear, Troubled
from reconverge.integrations.config import load
from reconverge.integrations.places import InvalidConfiguration
from reconverge.testing import ManualClock
from reconverge_sync.memory import MemoryHub

NOON = 1_000_000


class Wire:
    """Hands every message to all that are connected, at once."""

    def __init__(self) -> None:
        self.ears: list[tuple[Hear, Troubled]] = []
        self.said: list[bytes] = []


class Channel:
    """One node's end of a wire."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    def open(self, hear: Hear, troubled: Troubled) -> None:
        """Hear what is said from now on."""
        if (hear, troubled) not in self.wire.ears:
            self.wire.ears.append((hear, troubled))
        troubled(None)  # each look at what is due has a loop of its own here

    def tell(self, payload: bytes) -> None:
        """Have all hear it."""
        self.wire.said.append(payload)
        for hear, _ in self.wire.ears:
            hear(payload)

    async def close(self) -> None:
        """Hear no more."""
        self.wire.ears.clear()


class Broken(Channel):
    """One on which nothing works."""

    def open(self, hear: Hear, troubled: Troubled) -> None:
        """Fail."""
        raise RuntimeError("a bug")

    async def close(self) -> None:
        """Fail."""
        raise RuntimeError("a bug")


class Shop:
    """Two nodes that meet at a hub in memory, and hint to each other."""

    def __init__(self, channels: list[Channel]) -> None:
        self.clock = ManualClock(start=NOON)
        self.hub = MemoryHub(clock=self.clock)
        self.agents = [
            Agent(self.hub, clock=self.clock, sync_interval=10.0, sigterm=False, policy="strict", hints=channel)
            for channel in channels
        ]
        for agent in self.agents:
            agent.start = lambda: None  # type: ignore[method-assign]  # the test drives the exchanges
        self.limiters = [agent.limit("login", "100/day") for agent in self.agents]

    def passes(self, seconds: float) -> None:
        """So much time; whoever has to exchange meanwhile does."""
        for _ in range(round(seconds / 0.1)):
            self.clock.advance(0.1)
            for agent in self.agents:
                asyncio.run(agent._exchanges.carry_out())

    def hints_of(self, index: int) -> Any:
        """What an agent says of them."""
        return self.agents[index].stats().hints


def test_a_key_that_is_used_up_is_known_to_all() -> None:
    """Before they would exchange again."""
    wire = Wire()
    shop = Shop([Channel(wire), Channel(wire)])
    first, second = shop.limiters
    second.test("ada")
    shop.passes(1.0)
    first.test("ada")
    while first.allow("ada") or first.usage("ada").own < 100:
        shop.passes(1.0)
    second.test("ada")
    before = shop.agents[1].stats().exchanges[0].exchanges
    shop.passes(4.0)

    assert 1 == len(wire.said) == shop.hints_of(0).told
    assert (1, 1) == (shop.hints_of(1).heard, shop.hints_of(1).heeded)
    assert before + 1 >= shop.agents[1].stats().exchanges[0].exchanges
    assert 100 == second.usage("ada").total


def test_a_channel_with_a_bug_costs_hints_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    """It is counted, and told once."""
    wire = Wire()
    shop = Shop([Broken(wire), Broken(wire)])
    for limiter in shop.limiters:
        limiter.allow("ada")
    shop.passes(1.0)
    assert [True, True] == [limiter.allow("ada") for limiter in shop.limiters]
    shop.passes(30.0)
    asyncio.run(shop.agents[0]._exchanges.close())

    assert [2, 2] == [limiter.usage("ada").total for limiter in shop.limiters]
    assert [0, 0] == [agent.stats().bugs for agent in shop.agents]
    assert 1 < shop.hints_of(0).failures["bug"]
    assert 2 == sum("not foreseen" in record.getMessage() for record in caplog.records)


def test_an_outage_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """However often the channel comes and goes; each time is counted."""
    caplog.set_level(logging.WARNING, "reconverge")
    wire = Wire()
    shop = Shop([Channel(wire)])
    shop.passes(1.0)
    ((_, troubled),) = wire.ears
    for _ in range(10):
        troubled(HubUnavailable("refused", "nobody there"))
        assert not shop.hints_of(0).connected
        troubled(None)
        assert shop.hints_of(0).connected
        shop.clock.advance(7.0)

    assert {"refused": 10} == shop.hints_of(0).failures
    assert 2 == sum("no hints by way of" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("localhost", "hints='localhost': is not a URL like mqtt://"),
        ("redis://localhost:6379/0", "hints do not travel by redis://; known: mqtt://, mqtts://"),
        ("mqtt://user:hunter2@localhost/topic", "something after the port"),
        ("mqtt://localhost?protocol=4", "has a protocol that is none of"),
        (42, "is neither a URL nor a HintChannel"),
    ],
)
def test_a_mistake_is_told_at_once(given: Any, problem: str) -> None:
    """And shows no password."""
    with pytest.raises(InvalidSetting) as caught:
        Agent(MemoryHub(), hints=given)

    assert "hints" == caught.value.name
    assert problem in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_without_a_hub_nobody_is_told() -> None:
    """And nothing is connected."""
    with Agent("memory://", hints="mqtt://localhost:1") as agent:
        agent.limit("login", "1/day").allow("ada")

    assert None is agent.stats().hints


def test_the_environment_and_a_file_say_it_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As with the other settings."""
    assert None is Agent(MemoryHub(), sigterm=False).stats().hints
    monkeypatch.setenv("RECONVERGE_HINTS", "mqtt://localhost:1883")
    assert Agent(MemoryHub(), sigterm=False).stats().hints
    monkeypatch.delenv("RECONVERGE_HINTS")
    file = tmp_path / "shop.toml"
    file.write_text("hub = 'redis://localhost:1/0'\nhints = 'mqtt://localhost:1883'\n")
    configuration = load(file)
    assert configuration.agent.stats().hints
    file.write_text("hub = 'redis://localhost:1/0'\nhints = 'mqtt://elsewhere:1883'\n")

    with pytest.raises(InvalidConfiguration, match="hints: cannot change while the agent runs"):
        configuration.reload()
