"""Goal: whoever stops hands the ledger to a member that stays.

Method: three members at a real mosquitto, of which two stop, one right after the other.
"""

from __future__ import annotations

import asyncio

from reconverge.hub.report import Totals
from reconverge_sync.mqtt.election import BEATS
from reconverge_sync.mqtt.messages import Kind
from reconverge_sync.mqtt.shard import HEARD_LATELY_NS
from tests.support.brokers import Mosquitto
from tests.support.hubs.fleet_on_mqtt import TENURE_NS, TIMEOUT_S, MqttFleet
from tests.support.metered import batch_of, clock_in_november, row_of, rows_of
from tests.support.poison import batch


def test_a_member_that_is_about_to_go_inherits_nothing(mosquitto: Mosquitto) -> None:
    """Though it was the last to speak: what it said was its last word."""

    async def tried() -> None:
        fleet = MqttFleet(mosquitto.url)
        stops, stays, leaves = (fleet.join() for _ in range(3))
        await stops.exchange(batch("node1.0"))
        await stays.exchange(batch("node2.0"))
        await leaves.exchange(batch("node3.0", leaving=True))
        assert [stops] == fleet.keepers()

        await leaves.close()
        await stops.close()

        await stays.exchange(batch("node2.0", 2))
        assert {"login": Totals(21, 0)} == await stays.totals()
        await stays.close()

    asyncio.run(tried())


def test_a_successor_that_stops_before_it_has_heard_of_another_member_gives_all_away(mosquitto: Mosquitto) -> None:
    """Members that stop one right after the other, as in a rolling deployment, lose neither counts nor usage."""

    async def tried() -> None:
        fleet = MqttFleet(mosquitto.url, hub_clock=clock_in_november())
        stops, stays, follows = (fleet.join() for _ in range(3))
        for number, member in enumerate((stops, stays, follows), start=1):
            await member.exchange(batch(f"node{number}.0"))
        await stays.usage.record(batch_of([row_of(5)]))
        await follows.usage.record(batch_of([row_of(6)], account="gone"))
        await stops.close()

        closing = asyncio.create_task(follows.close())
        await stays.exchange(batch("node2.0", 2))
        await closing

        assert {"login": Totals(21, 0)} == await stays.totals()
        assert 11 == (await rows_of(stays.usage, row_of(0).period))[row_of(0).key].cost
        await stays.close()

    asyncio.run(tried())


def test_the_last_member_that_has_taken_over_stops_soon(mosquitto: Mosquitto) -> None:
    """It waits for a member to give the ledger to for a part of its time, and only if it has just got it."""

    async def tried() -> None:
        fleet = MqttFleet(mosquitto.url)
        stops, last = fleet.join(), fleet.join()
        await stops.exchange(batch("node1.0"))
        await last.exchange(batch("node2.0"))
        await stops.close()
        await last.exchange(batch("node2.0", 2))
        (server,) = fleet.servers()
        for _ in range(BEATS):
            fleet.clock.leap()
        assert HEARD_LATELY_NS < BEATS * (TENURE_NS // BEATS // 2)

        async with asyncio.timeout(TIMEOUT_S / 4):
            assert await server.hand_over(must_not_deliver, usage_s=TIMEOUT_S) is not None
        await last.close()

    asyncio.run(tried())


async def must_not_deliver(successor: str, kind: Kind, payload: bytes) -> None:
    """There is no member to have anything."""
    raise AssertionError(successor, kind, payload)
