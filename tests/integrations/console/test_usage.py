"""Goal: the console shows what the hub has added up, over time, by limit and customer, and reads no more than it needs.

Method: rows of periods that are recorded at a hub in memory, and a console that asks it as a page does.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from reconverge import Agent
from reconverge.clock import SECOND_NS, SystemClock
from reconverge.hub.usage import PAGES, Period, UsageRow
from reconverge.integrations.console import console
from reconverge.usage.periods import period_at
from reconverge_sync.memory import MemoryHub
from tests.support.console import READS, TOKENS, Browser
from tests.support.fixtures.agents import MakeAgent
from tests.support.used import recorded


def now(kind: str = "hour") -> Period:
    return period_at(kind, SystemClock.wall_ns() / SECOND_NS)


def chart(client: Browser, **asked: str) -> Any:
    response = client.get("/usage", params=asked, headers=READS)
    assert 200 == response.status_code, response.text
    return response.json()


@pytest.fixture
def used(hub: MemoryHub) -> MemoryHub:
    """A hub at which two customers have used two limits, in this hour and the two before."""
    this = now().number
    for period, used, counts in (
        (this - 2, ("acme", "calls"), (5, 5)),
        (this, ("acme", "calls"), (7, 3, 2)),
        (this, ("bob", "tokens"), (900, 1)),
    ):
        asyncio.run(recorded(hub, Period("hour", period), used, *counts))
    return hub


@pytest.mark.usefixtures("used")
def test_all_that_was_used_is_in_the_chart(client: Browser) -> None:
    """Period by period, the newest last, with the largest customers of the newest; an hour without use is 0."""
    told = chart(client)

    assert ("hour", 24, ["calls", "tokens"]) == (told["period"], len(told["points"]), told["limits"])
    assert [(5, 5, 0), (0, 0, 0), (907, 4, 2)] == [
        (each["cost"], each["requests"], each["refused"]) for each in told["points"][-3:]
    ]
    assert [("bob", 900), ("acme", 7)] == [(each["identity"], each["cost"]) for each in told["top"]]


@pytest.mark.usefixtures("used")
def test_one_limit_and_one_customer_can_be_looked_at(client: Browser) -> None:
    """And one of which nothing is known has used nothing."""
    assert [5, 0, 7] == [each["cost"] for each in chart(client, limit="calls")["points"][-3:]]
    assert ["acme"] == [each["identity"] for each in chart(client, limit="calls")["top"]]
    assert [0, 0, 900] == [each["cost"] for each in chart(client, identity="bob")["points"][-3:]]
    assert {0} == {each["cost"] for each in chart(client, identity="bob", limit="calls")["points"]}
    assert {0} == {each["cost"] for each in chart(client, identity="eve")["points"]}


@pytest.mark.parametrize(("kind", "periods"), [("minute", 30), ("hour", 24), ("day", 30), ("month", 12)])
def test_each_kind_of_periods_has_a_chart(client: Browser, kind: str, periods: int) -> None:
    """Of so many that every hub keeps."""
    assert periods == len(chart(client, period=kind)["points"])


def test_where_no_usage_is_added_up_that_is_said() -> None:
    """An agent without a hub is such a case."""
    alone = Agent("memory://")
    with Browser(console(alone, tokens=TOKENS)) as client:
        response = client.get("/usage", headers=READS)

    assert 501 == response.status_code
    assert "usage is not added up" in response.json()["detail"]


def test_a_period_that_is_over_is_read_once_and_forgotten_with_an_identity(
    used: MemoryHub, make_agent: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that is looked at reads the present period again, at most; what is erased is not kept here."""
    read: Counter[Period] = Counter()
    totals = used.usage.totals

    async def counted(period: Period, shard: int, page: int) -> Sequence[UsageRow]:
        read[period] += 1
        return await totals(period, shard, page)

    monkeypatch.setattr(used.usage, "totals", counted)
    agent = make_agent(used, namespace="shop")
    with Browser(console(agent, tokens=TOKENS)) as client:
        for limit in ("", "calls", "tokens"):
            chart(client, limit=limit)
        assert {PAGES} == {count for period, count in read.items() if period != now()}

        asyncio.run(agent.forget("acme", wait=20.0))

        assert ["bob"] == [each["identity"] for each in chart(client)["top"]]
