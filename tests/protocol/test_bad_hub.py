"""Goal: the loop outlives a hub that breaks its promises.

Method: agents in real time, with hubs in memory that raise what a hub must not, or talk nonsense.
"""

from __future__ import annotations

import pytest

from reconverge import Agent
from reconverge.hub.report import Answer, Batch
from reconverge_sync.memory import MemoryHub
from tests.support.nonsense import LIES, NONSENSE, OddHub
from tests.support.servers import wait_until
from tests.support.waiting import eventually


class BadHub(MemoryHub):
    """Raises a ValueError instead of HubUnavailable, until it is mended."""

    mended = False

    async def exchange(self, batch: Batch) -> Answer:
        """Raise, or answer."""
        if not self.mended:
            raise ValueError("this is nobody's business")
        return await super().exchange(batch)


def test_a_hub_that_raises_what_it_must_not_is_a_hub_that_is_away(caplog: pytest.LogCaptureFixture) -> None:
    """Decisions go on, each failure is counted by its class, the surprise is logged once, and then all is well."""
    hub = BadHub()
    with Agent(hub, sync_interval=0.01) as agent:
        login = agent.limit("login", "100/hour")
        admitted = sum(login.allow("ada") for _ in range(150))
        wait_until(lambda: agent.stats().exchanges[0].failures.get("bug:ValueError", 0) > 2, "several attempts")
        hub.mended = True
        wait_until(lambda: agent.ready, "an answer")

    assert 100 == admitted
    assert 1 == sum("raised an error other than HubUnavailable" in record.message for record in caplog.records)
    assert 0 == agent.stats().bugs


@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize(
    "name", ["hub_us 2**62", "hub_us None", "hub_us a word", "cells None", "allowance None", "status 7"]
)
def test_an_agent_exchanges_again_after_nonsense(name: str, times: int) -> None:
    """On its own thread, in real time: the class is counted, and once the hub makes sense the agent is ready."""
    hub = OddHub()
    with Agent(hub, sync_interval=0.01) as agent:
        login = agent.limit("login", "100/hour")
        login.allow("ada")
        eventually(lambda: agent.ready and login.usage("ada").total == 1, "an answer")
        hub.odd = NONSENSE[name]

        def has_talked_nonsense() -> bool:
            login.allow("ada")  # refused once the allowance is used up, and of interest to the hub all the same
            return hub.said >= times

        eventually(has_talked_nonsense, "nonsense")
        hub.odd = None
        exchanges = agent.stats().exchanges[0].exchanges
        used = login.usage("ada").own

        eventually(lambda: agent.stats().exchanges[0].exchanges > exchanges, "another exchange")
        eventually(lambda: login.usage("ada").total == used and agent.ready, "all is told")

    assert {"protocol": hub.said} == agent.stats().exchanges[0].failures
    assert 0 == agent.stats().bugs


@pytest.mark.slow
def test_health_names_the_protocol_and_is_starting_only_at_the_start() -> None:
    """From the first nonsense on its ground is that class, and `starting` is over once an exchange was tried."""
    hub = OddHub()
    hub.odd, hub.always = NONSENSE["hub_us 2**62"], True
    agent = Agent(hub, sync_interval=0.01, exchange_timeout=0.1, lease_ttl=2.0)
    assert "starting" == agent.health().state
    with agent:
        eventually(lambda: agent.health().state != "starting", "the first exchange")
        never_answered = agent.health()
        hub.odd = None
        eventually(lambda: agent.ready, "an answer")
        hub.odd = NONSENSE["hub_us None"]
        eventually(lambda: agent.health().state == "degraded", "nonsense")
        degraded = agent.health()
        eventually(lambda: agent.health().state == "partitioned", "the end of the lease")
        partitioned = agent.health()

    for health in (never_answered, degraded, partitioned):
        assert "the last with 'protocol'" in health.grounds[0]
    assert "partitioned" == never_answered.state


def test_a_node_that_is_always_given_up_is_not_starting() -> None:
    """A hub that answers each time that the lease is over: there are no allowances, and that is what `health` says."""
    hub = OddHub()
    hub.odd, hub.always = LIES["given up"], True
    with Agent(hub, sync_interval=0.01) as agent:
        eventually(lambda: hub.said > 3, "several answers")
        health = agent.health()

    assert "partitioned" == health.state


def test_a_fallback_stands_in_for_a_hub_that_talks_nonsense() -> None:
    """An answer that no hub may give counts as none: after a few of them the node is with its fallback."""
    hub = OddHub()
    hub.odd, hub.always = NONSENSE["hub_us 2**62"], True
    with Agent(hub, fallback=MemoryHub(), sync_interval=0.01) as agent:
        login = agent.limit("login", "100/hour")
        login.allow("ada")
        eventually(lambda: agent.ready and login.usage("ada").total == 1, "an answer of the fallback")


class _Board(OddHub):
    """A settings store on which something else than bytes is posted."""

    posted: object = None

    async def post(self, payload: bytes, *, keep_s: float) -> None:
        """Does nothing."""

    async def read(self, *, bytes_max: int) -> bytes | None:
        return self.posted  # type: ignore[return-value]


def test_nonsense_in_a_settings_store_is_a_failed_read_and_no_bug() -> None:
    """It is counted in the class "protocol", and exchanges go on meanwhile."""
    hub = _Board()
    hub.posted = ["settings"]
    with Agent(hub, sync_interval=0.01, settings_secret=bytes(range(32))) as agent:

        def failures() -> dict[str, int]:
            orders = agent.stats().orders
            assert orders is not None
            return orders.failures

        eventually(lambda: failures().get("protocol", 0) > 2, "several reads")

        assert agent.ready
        assert 0 == agent.stats().bugs
