"""Goal: a fleet knows from how many addresses an identity comes, each counted once. Method: several nodes.

What a hub merges is in `test_ledger.py`, and how exact an estimate is in `test_addresses.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from reconverge.clock import ManualClock
from reconverge.errors import HubUnavailable, InvalidSetting
from reconverge.hub.usage import AddressReport
from reconverge.usage import from_many_addresses, period_at
from reconverge.usage.addresses import ERROR
from reconverge_sync.memory import MemoryHub, MemoryUsage
from tests.support.metered import NOVEMBER, MeteredNode

HOUR = period_at("hour", NOVEMBER)


class LosingAddresses:
    """A ledger to which what is told of addresses may be lost."""

    def __init__(self, ledger: MemoryUsage) -> None:
        self._ledger = ledger
        self.shards = ledger.shards
        self.loses = False
        self.notes = 0

    async def address_secret(self, proposed: bytes = b"") -> bytes:
        return await self._ledger.address_secret(proposed)

    async def note_addresses(self, report: AddressReport) -> int:
        self.notes += 1
        if self.loses:
            raise HubUnavailable("connection", "lost by the test")
        return await self._ledger.note_addresses(report)

    async def address_sketches(self, hour: int, shard: int, secret: bytes) -> Mapping[str, bytes]:
        return await self._ledger.address_sketches(hour, shard, secret)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)


def node_on(ledger: Any, clock: ManualClock, name: str) -> MeteredNode:
    """A node whose secret is known, so that the estimates are the same in every run."""
    node = MeteredNode(ledger, clock, name)
    node.meter.addresses.begin_with(f"secret of {name}".encode())
    return node


def found(ledger: Any, *, least: int = 1) -> dict[str, int]:
    """From how many addresses identities have come in the first hour of November."""
    return asyncio.run(from_many_addresses(ledger, HOUR, least=least))


def report(*nodes: MeteredNode) -> bool:
    """Whether all nodes could tell the hub what they know."""
    answers = [asyncio.run(node.driver.report()) for node in nodes]
    return all(answers)


def test_addresses_of_all_nodes_are_one_number(clock: ManualClock) -> None:
    """One that came to several nodes counts once; and no single node has met as many."""
    ledger = MemoryHub(clock=clock, shards=3).usage
    nodes = [node_on(ledger, clock, f"node {number}") for number in range(4)]
    for _ in range(2):  # a node takes the secret of the fleet before it tells anything
        for place, node in enumerate(nodes):
            for number in range(60):
                node.meter.addresses.note("acme", f"192.0.{place}.{number}")
                node.meter.addresses.note("zeta", f"198.51.100.{number}")
        assert report(*nodes)

    assert ["acme", "zeta"] == list(found(ledger, least=20))
    assert 240 == pytest.approx(found(ledger)["acme"], rel=4 * ERROR)
    assert 60 == pytest.approx(found(ledger)["zeta"], rel=4 * ERROR)
    assert ["acme"] == list(asyncio.run(from_many_addresses(ledger, HOUR)))
    assert {} == nodes[0].meter.addresses.unusual()


def test_what_could_not_be_told_is_told_later(clock: ManualClock) -> None:
    """With the next report of the hour; and where nothing has come, nothing is said."""
    ledger: Any = LosingAddresses(MemoryHub(clock=clock).usage)
    node = node_on(ledger, clock, "node")
    node.meter.addresses.note("acme", "192.0.2.1")
    assert report(node)
    ledger.loses = True
    node.meter.addresses.note("acme", "192.0.2.2")
    assert not report(node)
    assert {"connection": 1} == node.driver.failures
    assert {"acme": 1} == found(ledger)

    ledger.loses = False
    assert report(node, node, node)
    assert {"acme": 2} == found(ledger)
    assert 3 == ledger.notes


def test_a_hub_that_has_lost_its_data_is_told_again(clock: ManualClock) -> None:
    """All that nodes have met in the hour."""
    hub = MemoryHub(clock=clock)
    nodes = [node_on(hub.usage, clock, name) for name in ("one", "two")]
    for _ in range(2):
        for place, node in enumerate(nodes):
            node.meter.add("acme", "api")
            for number in range(2):
                node.meter.addresses.note("acme", f"192.0.{place}.{number}")
        assert report(*nodes)
    assert {"acme": 4} == found(hub.usage)
    hub.lose_data()
    report(*nodes, *nodes)

    assert {"acme": 4} == found(hub.usage)


def test_the_last_minutes_of_an_hour_belong_to_it(clock: ManualClock) -> None:
    """A report after its end is about the hour in which the requests came, and the next one begins with none."""
    ledger = MemoryHub(clock=clock).usage
    node = node_on(ledger, clock, "node")
    node.meter.addresses.note("acme", "192.0.2.1")
    clock.advance(3600)
    report(node)

    assert {"acme": 1} == found(ledger)
    assert {} == asyncio.run(from_many_addresses(ledger, period_at("hour", NOVEMBER + 3600), least=1))
    assert 0 == node.meter.addresses.estimate("acme")


def test_a_hub_that_does_not_merge_addresses_says_so(clock: ManualClock) -> None:
    """And a period that is no hour is an error that says so."""

    class Former:
        """A ledger without that."""

        shards = 1

    ledger: Any = Former()
    with pytest.raises(InvalidSetting, match="cannot merge the addresses"):
        found(ledger)
    with pytest.raises(InvalidSetting, match="is no hour"):
        asyncio.run(from_many_addresses(MemoryHub(clock=clock).usage, period_at("day", NOVEMBER)))
