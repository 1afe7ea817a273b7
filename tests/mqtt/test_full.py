"""Goal: a ledger among members that has no room serves what it knows, and takes nothing new.

Method: members at a real mosquitto, one of which keeps a ledger that has as much in it as it may.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from reconverge.hub.report import NOT_TAKEN
from reconverge_sync.mqtt import shard as server
from tests.support.brokers import Mosquitto
from tests.support.hubs.fleet_on_mqtt import MqttFleet
from tests.support.poison import CELL, batch
from tests.support.waiting import eventually_in_loop


async def test_a_full_ledger_serves_the_keys_that_it_has(mosquitto: Mosquitto) -> None:
    """Another key of the same batch is not taken; once there is room, it is."""
    fleet = MqttFleet(mosquitto.url)
    keeps, asks = fleet.join(), fleet.join()
    await keeps.exchange(batch("node1.0"))
    (ledger,) = fleet.ledgers()
    both = (CELL, CELL._replace(key="eve", current=0, allowance=0, base=0))
    taken = []
    for number, room in enumerate([1, 2], start=1):
        ledger.cells_max = room
        answer = await asks.exchange(batch("node2.0", number, cells=both))
        taken.append([cell.nodes != NOT_TAKEN for cell in tuple(answer.cells)])
    for hub in fleet.hubs:
        await hub.close()

    assert [[True, False], [True, True]] == taken


async def test_a_ledger_that_knows_as_many_nodes_as_it_may_hears_those_only(
    mosquitto: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new node gets no answer, which is counted; one that is known is answered as ever."""
    monkeypatch.setattr(server, "NODES_MAX", 1)

    fleet = MqttFleet(mosquitto.url)
    keeps, asks = fleet.join(), fleet.join()
    await asks.exchange(batch("node1.0"))
    (keeper,) = fleet.keepers()
    (leader,) = (each for each in fleet.servers() if each.candidate.ledger is not None)
    other = keeps if keeper is asks else asks

    stranger = asyncio.create_task(other.exchange(batch("node2.0")))
    await eventually_in_loop(lambda: 1 == leader._rejects["full"], "a refusal that is counted")
    stranger.cancel()
    with suppress(asyncio.CancelledError):
        await stranger
    answer = await other.exchange(batch("node1.0", 2))
    for hub in fleet.hubs:
        await hub.close()

    assert "MERGED" == answer.status.name
