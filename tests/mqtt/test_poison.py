"""Goal: nothing that anybody sends to a broker makes a member fail, or changes what it knows.

Method: ten thousand messages on every topic there is: noise, and letters that were good until they were cut, bent,
sent from another age or to somebody else. What can still be read as a good letter is left out.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from copy import deepcopy
from functools import partial
from random import Random

import aiomqtt

from reconverge.clock import ManualClock
from reconverge.hub.report import Status
from reconverge_sync.mqtt import messages
from reconverge_sync.mqtt.election import TERM_MAX, LeaderClaim
from reconverge_sync.mqtt.leader import WAIT_NS, Candidate
from reconverge_sync.mqtt.messages import MessageKind
from reconverge_sync.mqtt.shard import ShardServer
from tests.support.brokers import Mosquitto
from tests.support.hubs.fleet_on_mqtt import MqttFleet
from tests.support.poison import MERGED, STRANGER, batch, corpus, good, wrong_batches
from tests.support.waiting import eventually_in_loop

MESSAGES = 10_000
AT_ONCE = 200
"""So many are sent before all are seen to have come: a broker drops what somebody is too slow to hear."""


async def test_poison_changes_nothing(mosquitto: Mosquitto) -> None:
    """Neither at the member that keeps the ledger, nor at another one; and each message is counted as of no use."""
    random = Random(1)
    fleet = MqttFleet(mosquitto.url, hub_clock=ManualClock(1_740_000_000.0))
    hubs = [fleet.join(), fleet.join()]
    for place, hub in enumerate(hubs):
        await hub.exchange(batch(f"node{place}.0"))
    before = deepcopy(fleet.ledgers())
    terms_led = [server.election.terms_led for server in fleet.servers()]
    names = [server.election.member for server in fleet.servers()]
    source = corpus(random)
    expected = 0
    async with aiomqtt.Client("127.0.0.1", mosquitto.port) as attacker:
        keeper = fleet.keepers()[0].membership().servers[0].election.member
        for wrong in wrong_batches():
            await attacker.publish(f"{fleet.namespace}/rc/v1/0/to/{keeper}/batch/{STRANGER}", wrong, qos=1)
            expected += 1
        await eventually_in_loop(partial(_rejected, fleet, expected), "all wrong batches were of no use")
        for _ in range(MESSAGES // AT_ONCE):
            for _ in range(AT_ONCE):
                kind, payload = next(source)
                whom = random.choice(names)
                topic = "0/claims" if kind == "claims" else f"0/to/{whom}/{kind}/{random.choice([STRANGER, *names])}"
                if random.random() < 0.1:
                    kind, topic = "", random.choice([f"gone/{payload.hex()[:30]}x", f"0/to/{whom}/nonsense/{STRANGER}"])
                retain = kind != "claims" and random.random() < 0.05
                await attacker.publish(f"{fleet.namespace}/rc/v1/{topic}", payload, qos=1, retain=retain)
                expected += 2 if topic == "0/claims" or topic.startswith("gone/") else 1
            await eventually_in_loop(partial(_rejected, fleet, expected), "all has come, and was of no use")

    assert before == fleet.ledgers()
    assert terms_led == [server.election.terms_led for server in fleet.servers()]
    assert names == [server.election.member for server in fleet.servers()]
    assert Status.MERGED == (await hubs[1].exchange(batch("node1.0", 2))).status
    for hub in hubs:
        await hub.close()


def _rejected(fleet: MqttFleet, expected: int) -> bool:
    return expected == sum(hub.rejects.total() for hub in fleet.hubs)


async def test_what_the_broker_has_kept_for_newcomers_is_of_no_use(mosquitto: Mosquitto) -> None:
    """Apart from the newest claim, nothing is kept by members, so whatever else there is was left by somebody else."""
    fleet = MqttFleet(mosquitto.url)
    async with aiomqtt.Client("127.0.0.1", mosquitto.port) as attacker:
        root = f"{fleet.namespace}/rc/v1"
        await attacker.publish(f"{root}/gone/{STRANGER}", b"", qos=1)
        await attacker.publish(f"{root}/gone/{STRANGER}", b"x", qos=1, retain=True)
        await attacker.publish(f"{root}/0/claims", b"x", qos=1, retain=True)
    hub = fleet.join()
    answer = await hub.exchange(batch())
    await hub.close()

    assert Status.MERGED == answer.status
    assert {"retained": 1, "format": 1} == hub.rejects


async def test_a_fleet_survives_the_highest_claim_there_is(mosquitto: Mosquitto) -> None:
    """Whoever may write to the claims can unseat a member, and no more than that: names decide from there on."""
    fleet = MqttFleet(mosquitto.url)
    hub = fleet.join()
    await hub.exchange(batch())
    async with aiomqtt.Client("127.0.0.1", mosquitto.port) as attacker:
        claim = messages.write_claim(LeaderClaim(TERM_MAX, STRANGER, 1))
        await attacker.publish(f"{fleet.namespace}/rc/v1/0/claims", claim, qos=1)
    await eventually_in_loop(lambda: not fleet.ledgers(), "the member is unseated")
    (server,) = fleet.servers()

    assert Status.MERGED == (await hub.exchange(batch(sequence=2))).status
    assert server.election.member == server.election.leader
    await hub.close()


async def test_only_whoever_was_asked_can_answer() -> None:
    """An answer by another member, to another question, or after the time for it, is not taken in."""
    sent: list[tuple[str, MessageKind]] = []
    clock = ManualClock(1_740_000_000.0)
    rejects: Counter[str] = Counter()
    leader = Candidate(clock, random=Random(1), new_name=lambda: "data")
    leader.election.join("a" * 20, 0)
    leader.election.hear(LeaderClaim(1, STRANGER, 1, answers=True), 0)

    def post(whom: str, kind: MessageKind, payload: bytes) -> bool:
        sent.append((whom, kind))
        return True

    server = ShardServer(0, leader, clock=clock, wait_ns=WAIT_NS, post=post, rejects=rejects)
    asking = asyncio.ensure_future(server.exchange(batch(), 30.0))
    await asyncio.sleep(0)
    assert [(STRANGER, MessageKind.BATCH)] == sent
    server.hear(MessageKind.ANSWER, "b" * 20, good()["answer"])
    server.hear(MessageKind.ANSWER, STRANGER, messages.write_answer(batch(sequence=2), MERGED))
    clock.advance_ns(WAIT_NS + 1)
    server.hear(MessageKind.ANSWER, STRANGER, good()["answer"])
    await asyncio.sleep(0)

    assert not asking.done()
    assert {"unasked": 2, "late": 1} == rejects

    second = asyncio.ensure_future(server.exchange(batch(sequence=3), 30.0))
    await asyncio.sleep(0)
    server.hear(MessageKind.ANSWER, STRANGER, messages.write_answer(batch(sequence=3), MERGED))
    assert "known" == (await second).generation
    asking.cancel()
