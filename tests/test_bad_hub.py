"""Goal: the loop outlives a hub that breaks its promises. Method: a hub in memory that raises what a hub must not."""

from __future__ import annotations

import pytest

from reconverge import Agent
from reconverge.report import Answer, Batch
from reconverge_sync.memory import MemoryHub
from tests.servers import wait_until


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
    assert 1 == sum("raised what it must not" in record.message for record in caplog.records)
    assert 0 == agent.stats().bugs
