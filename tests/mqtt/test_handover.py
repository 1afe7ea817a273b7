"""Goal: whoever stops hands the ledger to a member that stays.

Method: members at a real mosquitto, of which one or two stop, one right after the other; and parts of what is handed
over that do not belong together.
"""

from __future__ import annotations

import asyncio

import pytest

from reconverge.errors import HubUnavailable
from reconverge.hub.report import Totals
from reconverge_sync.merge.usage import UsageState
from reconverge_sync.mqtt.election import BEATS
from reconverge_sync.mqtt.handover import write_ledger
from reconverge_sync.mqtt.messages import MessageKind
from reconverge_sync.mqtt.shard import HEARD_LATELY_NS
from reconverge_sync.mqtt.succession import Successor
from reconverge_sync.mqtt.usage_handover import write_usage
from tests.mqtt.test_leader import Table, answered
from tests.mqtt.test_leader import batch as said_by_a_node
from tests.support.brokers import Mosquitto
from tests.support.hubs.fleet_on_mqtt import TENURE_NS, TIMEOUT_S, MqttFleet
from tests.support.metered import batch_of, clock_in_november, row_of, rows_of
from tests.support.poison import batch


async def test_a_member_that_is_about_to_go_inherits_nothing(mosquitto: Mosquitto) -> None:
    """Though it was the last to speak: what it said was its last word."""
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


async def test_a_successor_that_stops_before_it_has_heard_of_another_member_gives_all_away(
    mosquitto: Mosquitto,
) -> None:
    """Members that stop one right after the other, as in a rolling deployment, lose neither counts nor usage."""
    fleet = MqttFleet(mosquitto.url, hub_clock=clock_in_november(), waits_to_give=True)
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


async def test_the_last_member_that_has_taken_over_stops_soon(mosquitto: Mosquitto) -> None:
    """It waits for a member to give the ledger to for a part of its time, and only if it has just got it."""
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


async def must_not_deliver(successor: str, kind: MessageKind, payload: bytes) -> None:
    """There is no member to have anything."""
    raise AssertionError(successor, kind, payload)


async def test_what_comes_after_the_usage_was_given_is_refused_and_told_to_the_successor(mosquitto: Mosquitto) -> None:
    """A leader that took it in would confirm what its successor does not have; it is counted once, by the successor."""
    fleet = MqttFleet(mosquitto.url, hub_clock=clock_in_november(), waits_to_give=True)
    leader, other = fleet.join(), fleet.join()
    await leader.exchange(batch("node1.0"))
    await other.exchange(batch("node2.0"))
    await other.usage.record(batch_of([row_of(5)]))
    given, may_go_on = asyncio.Event(), asyncio.Event()

    async def deliver(successor: str, kind: MessageKind, payload: bytes) -> None:
        given.set()
        await may_go_on.wait()

    server = fleet.servers()[0]
    handing_over = asyncio.create_task(server.hand_over(deliver, usage_s=TIMEOUT_S))
    await given.wait()
    with pytest.raises(HubUnavailable, match="about to stop"):
        await other.usage.record(batch_of([row_of(7)], sequence=2, answered=1))
    may_go_on.set()
    await handing_over
    await leader.dies()
    await other.close()


@pytest.mark.parametrize(("ahead", "sequences"), [(0, {"account": 3}), (1, {})])
def test_usage_counts_with_the_ledger_of_its_term_alone(ahead: int, sequences: dict[str, int]) -> None:
    """Accounts may have reported again what they had reported in another term.

    A node then reports all that it keeps.
    """
    table = Table("ada", "bob")
    table.talk(10)
    leaver = table.leader()
    (heir,) = (one for one in table.members if one is not leaver)
    answered(leaver, said_by_a_node())
    name, term = leaver.election.member, leaver.election.term
    successor, ledger = Successor(heir), leaver.hand_over()
    assert ledger is not None
    for part in write_usage(UsageState(sequences={"account": 3}), term + ahead):
        successor.take_usage(name, part)

    assert [True] == [successor.take_ledger(name, part) for part in write_ledger(ledger, term)]

    table.dismiss(leaver)
    table.talk(0.05)
    heir.go_on()
    assert sequences == heir.usage.sequences
