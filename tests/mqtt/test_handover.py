"""Goal: whoever stops hands the ledger to a member that stays.

Method: three members at a real mosquitto, of which two stop, one right after the other.
"""

from __future__ import annotations

import asyncio

from reconverge.hub.report import Totals
from tests.support.brokers import Mosquitto
from tests.support.hubs.fleet_on_mqtt import MqttFleet
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
