"""Goal: what the log says of a hub's outages is short, whatever the hub does.

Method: exchanges over a hub that fails when the test says so, by a clock of the test's own.
"""

from __future__ import annotations

import asyncio
from typing import Self

import pytest

from reconverge.clock import SECOND_NS
from reconverge.errors import HubUnavailable
from reconverge.exchange.driver import ExchangeDriver
from reconverge.exchange.exchanges import OUTAGES_LOGGED_MAX, QUIET_NS
from reconverge.hub.report import Answer, Batch
from reconverge_sync.memory import MemoryHub
from tests.support.kernel.talker import MINUTE, Talkers, busy

OUTAGE = ["is unavailable", "answers again"]
HUB = "fickle"


class FickleHub(MemoryHub):
    """Answers whom it wants to."""

    fails: frozenset[str] = frozenset()
    """The names of the nodes that it does not answer."""

    async def exchange(self, batch: Batch) -> Answer:
        if batch.node in self.fails:
            raise HubUnavailable("refused", "Nobody listens.")
        return await super().exchange(batch)


class Exchanging:
    """Two nodes that stand for two shards, and the exchanges of both; a context, in which they go on."""

    def __init__(self) -> None:
        self._world: Talkers = busy(MINUTE, nodes=2)
        self.clock = self._world.clock
        self.hub = FickleHub(clock=self._world.clock)
        self._exchanges = ExchangeDriver(
            [node.syncer for node in self._world.nodes],
            hub=self.hub,
            clock=self._world.clock,
            timeout_s=5.0,
            hub_name=HUB,
        )
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()

    def names(self) -> list[str]:
        """By which the hub knows the nodes."""
        return sorted(node.syncer.node for node in self._world.nodes)

    def go_on(self, seconds: int) -> None:
        """Exchange for so long, whenever that is due."""
        until_ns = self._world.clock.monotonic_ns() + seconds * SECOND_NS
        while self._world.clock.monotonic_ns() < until_ns:
            for node in self._world.nodes:
                node.table.allow("ada")
            self._world.clock.advance_ns(round(self._exchanges.due_in_s() * SECOND_NS) + 1)
            self._runner.run(self._exchanges.carry_out())


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    ours = [record.getMessage() for record in caplog.records if getattr(record, "hub", "") == HUB]
    return [next(word for word in OUTAGE if word in message) for message in ours]


def test_a_hub_that_comes_and_goes_is_told_of_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    """Five outages a minute, each once; the sixth when the first is a minute ago."""
    with Exchanging() as exchanging:
        names = frozenset(exchanging.names())
        for _ in range(2 * OUTAGES_LOGGED_MAX):
            for exchanging.hub.fails in (names, frozenset()):
                exchanging.go_on(seconds=1)
        flapping = said(caplog)
        exchanging.clock.advance_ns(QUIET_NS)
        for exchanging.hub.fails in (names, frozenset()):
            exchanging.go_on(seconds=1)

    assert OUTAGE * OUTAGES_LOGGED_MAX == flapping
    assert OUTAGE * (OUTAGES_LOGGED_MAX + 1) == said(caplog)
    assert "(refused: Nobody listens);" in caplog.text


def test_a_shard_that_answers_does_not_end_the_outage_of_another(caplog: pytest.LogCaptureFixture) -> None:
    """The log says so once, and not with every answer of the one and every failure of the other."""
    with Exchanging() as exchanging:
        exchanging.hub.fails = frozenset(exchanging.names()[:1])
        exchanging.go_on(seconds=10)
        meanwhile = said(caplog)
        exchanging.hub.fails = frozenset()
        exchanging.go_on(seconds=10)

    assert OUTAGE[:1] == meanwhile
    assert OUTAGE == said(caplog)
