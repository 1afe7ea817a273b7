"""Goal: a limit holds for all regions together, and is used where it is asked for.

Method: real agents, a real Redis for each of two regions and one for both, and real bridges as processes.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from reconverge import Agent
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

QUOTA = 300
SHARE = 0.2
OWN = round(QUOTA * SHARE)
MOVABLE = 1 - 2 * SHARE
MOST = QUOTA - OWN
"""The most that one region can have of it, if the other has but its own part."""


class RunningRegion:
    """A Redis, an agent that meets others there, and a bridge, if there is one."""

    def __init__(self, name: str, wide: RedisServer) -> None:
        self.name = name
        self.server = RedisServer()
        self.wide = wide
        self.admitted = 0
        self.bridge: subprocess.Popen[str] | None = None
        self.bridge_said = ""

    def start(self) -> None:
        """Start the Redis and the agent."""
        self.server.start()
        self.agent = Agent(
            self.server.url,
            namespace="shop",
            sync_interval=0.02,
            lease_ttl=30.0,
            exchange_timeout=5.0,
            policy="strict",
            region_share=SHARE,
        )
        self.limiter = self.agent.limit("login", f"{QUOTA}/day", algorithm="sliding-log")
        self.agent.start()

    def start_bridge(self) -> None:
        """Start a bridge, and wait until it says so."""
        options = ["--region", self.name, "--local", self.server.url, "--wide", self.wide.url, "--namespace", "shop"]
        options += ["--movable", str(MOVABLE), "--interval", "0.05", "--timeout", "2", "--loan", "8"]
        self.bridge = subprocess.Popen(
            [sys.executable, "-m", "reconverge.cli", "bridge", *options],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.bridge.stdout is not None
        assert f"bridge of region {self.name}: " in self.bridge.stdout.readline()

    def end_bridge(self, number: signal.Signals) -> str:
        """Send it a signal; returns all that it said from then on, and what it warned of."""
        assert self.bridge is not None
        self.bridge.send_signal(number)
        said, warned = self.bridge.communicate(timeout=60)
        self.bridge = None
        self.bridge_said = warned
        return said

    def asks(self, times: int = 10) -> int:
        """Ask so often; returns how much was admitted by now."""
        self.admitted += sum(self.limiter.allow("ada") for _ in range(times))
        return self.admitted

    def stop(self) -> None:
        """End all of it."""
        if self.bridge is not None:
            self.bridge.kill()
            self.bridge.communicate()
        self.agent.stop()
        self.server.stop()


class TwoRegions:
    """Two regions, and a Redis for both."""

    def __init__(self) -> None:
        self.wide = RedisServer()
        self.eu, self.us = RunningRegion("eu", self.wide), RunningRegion("us", self.wide)

    @property
    def admitted(self) -> int:
        """By all agents together."""
        return self.eu.admitted + self.us.admitted


@pytest.fixture
def world() -> Iterator[TwoRegions]:
    """Without bridges at first."""
    made = TwoRegions()
    with ExitStack() as stack:
        stack.callback(made.wide.stop)
        made.wide.start()
        for region in (made.eu, made.us):
            stack.callback(region.stop)
            region.start()
        yield made


def test_without_bridges_a_region_has_its_own_part(world: TwoRegions) -> None:
    """All of it, and no more; so all regions together keep the limit."""
    eventually(lambda: world.eu.asks() == OWN, "the region's own part is used")
    eventually(lambda: world.us.asks() == OWN, "the other's is")

    assert 2 * OWN == world.eu.asks(100) + world.us.asks(100)


@pytest.mark.slow
def test_a_region_that_is_asked_for_more_gets_more(world: TwoRegions) -> None:
    """All that belongs to no region if nobody else needs it; the other has its own part all the time."""
    world.eu.start_bridge()
    world.us.start_bridge()
    eventually(lambda: world.eu.asks() == MOST, "one region uses all that is to be had")
    eventually(lambda: world.us.asks() == OWN, "the other has its own part")

    assert QUOTA == world.eu.asks(100) + world.us.asks(100)


@pytest.mark.slow
def test_a_bridge_that_ends_gives_back_what_is_free(world: TwoRegions) -> None:
    """And tells of the rest; so that the other region gets all that is left, and no more."""
    world.eu.start_bridge()
    eventually(lambda: world.eu.asks(1) > OWN + 20, "something was lent")
    said = world.eu.end_bridge(signal.SIGTERM)
    world.us.start_bridge()
    eventually(lambda: world.us.asks() and world.admitted > QUOTA - 10, "the other region gets what is left")

    assert "bridge of region eu has ended" in said
    assert world.eu.asks(100) + world.us.asks(100) <= QUOTA


@pytest.mark.slow
def test_a_bridge_that_is_killed_holds_up_no_decision(world: TwoRegions) -> None:
    """The other region has its own part; what was lent to the first is nobody else's for as long as it counts."""
    world.eu.start_bridge()
    world.us.start_bridge()
    eventually(lambda: world.eu.asks(1) > OWN + 20, "something was lent")
    world.eu.end_bridge(signal.SIGKILL)
    eventually(lambda: world.us.asks() >= OWN, "the other region has its own part at least")
    world.eu.start_bridge()
    for _ in range(20):
        world.eu.asks()
        world.us.asks()

    assert world.admitted <= QUOTA


@pytest.mark.slow
def test_a_wide_hub_that_is_away_and_back_empty_takes_nothing_from_anybody(world: TwoRegions) -> None:
    """Loans go on for a while, nothing is lent twice, and the bridge warns once."""
    world.eu.start_bridge()
    eventually(lambda: world.eu.asks(1) > OWN + 20, "something was lent")
    world.wide.kill()
    eventually(lambda: world.us.asks() == OWN, "the other region has its own part")
    world.wide.start()
    world.us.start_bridge()
    for _ in range(20):
        world.eu.asks()
        world.us.asks()

    assert world.admitted <= QUOTA

    world.eu.end_bridge(signal.SIGTERM)

    assert 1 == world.eu.bridge_said.count("is unavailable")
    assert 1 == world.eu.bridge_said.count("answers again")


@pytest.mark.slow
def test_a_regions_hub_that_is_back_empty_is_lent_anew(world: TwoRegions) -> None:
    """Its nodes' allowances are reported to it again; they go on, and so do loans."""
    world.eu.start_bridge()
    eventually(lambda: world.eu.asks(1) > OWN + 20, "something was lent")
    world.eu.server.kill()
    world.eu.server.start()
    world.us.start_bridge()
    for _ in range(50):
        world.us.asks(1)
        world.eu.asks(1)

    assert world.admitted <= QUOTA
