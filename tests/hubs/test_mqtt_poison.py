"""Goal: nothing that anybody sends to a broker makes a member fail, or changes what it knows.

Method: ten thousand messages on every topic there is: noise, and letters that were good until they were cut, bent,
sent from another age or to somebody else. What can still be read as a good letter is left out.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from random import Random
from typing import Any

import aiomqtt
import msgpack
import pytest

from reconverge.clock import ManualClock
from reconverge.limit import FIXED_WINDOW
from reconverge.report import SCHEMA_VERSION, Answer, Batch, CellReport, LimitReport, Status, Totals
from reconverge_sync import letters
from reconverge_sync.desk import Desk
from reconverge_sync.election import TERM_MAX, Claim
from reconverge_sync.ledger_letters import LedgerReader, write_ledger
from reconverge_sync.letters import Kind, Misfit
from reconverge_sync.merge import Shard
from reconverge_sync.steward import WAIT_NS, Steward
from tests.brokers import Mosquitto
from tests.hubs.fleet_on_mqtt import MqttFleet
from tests.waiting import eventually_in_loop

MESSAGES = 10_000
AT_ONCE = 200
"""So many are sent before all are seen to have come: a broker drops what somebody is too slow to hear."""
STRANGER = "f" * 20
EVIL = "evil.0"
"""A node that nobody knows: if it were heard, it would be in the ledger."""
LIMIT = LimitReport("login", FIXED_WINDOW, 60_000_000, 100, 100, 100, 7, 0)
CELL = CellReport(0, "ada", 29_000_000, 7, 0, 5, 5, 1, 1000, 0, 1, 1000, 1, 0)


MERGED = Answer(1_740_000_000_000_000, "known", Status.MERGED, ())


def batch(node: str = "node1.0", sequence: int = 1, **more: Any) -> Batch:
    """What an honest node may say."""
    told = Batch(node, node[:5], 0, sequence, "", 100_000, 30_000_000, False, (LIMIT,), (CELL,))
    return told._replace(**more)


def ledger() -> Shard:
    """What an honest member may hand over."""
    made = Shard()
    made.merge(batch(), hub_us=1_740_000_000_000_000, candidate="known")
    return made


def good() -> dict[str, bytes]:
    """A letter of each kind, under what it is called in a topic."""
    return {
        "claims": letters.write_claim(Claim(7, STRANGER, 1, answers=True)),
        "batch": letters.write_batch(batch()),
        "answer": letters.write_answer(batch(), MERGED),
        "question": letters.write_question(1),
        "totals": letters.write_totals(1, {"login": Totals(7, 0)}),
        "ledger": next(write_ledger(ledger(), 1)),
    }


READERS: dict[str, Callable[[bytes], object]] = {
    "claims": letters.read_claim,
    "batch": lambda payload: letters.read_batch(payload, shard=0),
    "answer": letters.read_answer,
    "question": letters.read_question,
    "totals": letters.read_totals,
    "ledger": lambda payload: LedgerReader(STRANGER).read(payload),
}


def is_good(kind: str, payload: bytes) -> bool:
    """Whether that can be read, so that it may have an effect. Whatever else reading raises is a failure."""
    try:
        READERS[kind](payload)
    except Misfit:
        return False
    return True


def wrong_batches() -> list[bytes]:
    """Batches that can be written, and must not be taken."""
    huge = 2**53 + 1
    limits = [
        *(_but(LIMIT, name, value) for name in ("quota", "window_us", "capacity") for value in (0, -1, huge)),
        *(_but(LIMIT, name, -1) for name in ("charged", "refunded", "withheld", "closes_us")),
        *(LIMIT._replace(algorithm=name) for name in ("", "nonsense", "fixed-window\0")),
        LIMIT._replace(name="x" * 129),
        LIMIT._replace(overshoot_milli=-2),
    ]
    cells = [
        *(_but(CELL, name, value) for name in ("line", "need_milli", "ask") for value in (huge, -1)),
        *(_but(CELL, name, value) for name in ("epoch", "current") for value in (huge, -huge)),
        CELL._replace(reset_us=-1),
        CELL._replace(limit=1),
    ]
    return [
        *(letters.write_batch(batch(EVIL, limits=(limit,))) for limit in limits),
        *(letters.write_batch(batch(EVIL, cells=(cell,))) for cell in cells),
        *(letters.write_batch(batch(name)) for name in ("", "x", "x" * 129)),
        letters.write_batch(batch(EVIL, shard=1)),
        letters.write_batch(batch(EVIL, cells=(CELL,) * 257)),
        letters.write_batch(batch(EVIL, 0)),
        letters.write_batch(batch(EVIL, lease_us=0)),
        *(_with_schema(SCHEMA_VERSION + step) for step in (-1, 1)),
    ]


def _but(record: Any, name: str, value: int) -> Any:
    """The same, but for one field."""
    return record._replace(**{name: value})


def _with_schema(version: int) -> bytes:
    shared = msgpack.packb([version, "node1.0", "node1", 0, 1, "", 1, 1, 0, []])
    head = letters._HEAD.pack(b"rc", letters.FORMAT, Kind.BATCH)
    return head + letters._BATCH.pack(len(shared), 0, 0) + bytes(shared)


def corpus(random: Random) -> Iterator[tuple[str, bytes]]:
    """What is sent, under what it is called in its topic."""
    yield from (spoilt for spoilt in spoilt_letters(random) if not is_good(*spoilt))


def spoilt_letters(random: Random) -> Iterator[tuple[str, bytes]]:
    """Noise, and letters that were good, of which some may still be."""
    known = good()
    while True:
        kind = random.choice(sorted(known))
        payload = bytearray(known[random.choice([kind, kind, kind, *known])])
        match random.randrange(5):
            case 0:
                payload = bytearray(random.randbytes(random.randrange(300)))
            case 1:
                del payload[random.randrange(len(payload)) :]
            case 2:
                for _ in range(random.randrange(1, 4)):
                    payload[random.randrange(len(payload))] ^= 1 << random.randrange(8)
            case 3:
                payload[2] = random.choice([0, 2, 255])  # another format
            case _:
                payload += random.randbytes(random.randrange(1, 20))
        yield kind, bytes(payload)


@pytest.mark.parametrize("seed", [1])
def test_poison_changes_nothing(mosquitto: Mosquitto, seed: int) -> None:
    """Neither at the member that keeps the ledger, nor at another one; and each message is counted as of no use."""
    asyncio.run(_poison(mosquitto, Random(seed)))


async def _poison(broker: Mosquitto, random: Random) -> None:
    fleet = MqttFleet(broker.url, hub_clock=ManualClock(1_740_000_000.0))
    hubs = [fleet.join(), fleet.join()]
    for place, hub in enumerate(hubs):
        await hub.exchange(batch(f"node{place}.0"))
    before = deepcopy(fleet.ledgers())
    reigns = [desk.election.reigns for desk in fleet.desks()]
    names = [desk.election.member for desk in fleet.desks()]
    source = corpus(random)
    expected = 0
    async with aiomqtt.Client("127.0.0.1", broker.port) as attacker:
        keeper = fleet.keepers()[0].membership().desks[0].election.member
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
    assert reigns == [desk.election.reigns for desk in fleet.desks()]
    assert names == [desk.election.member for desk in fleet.desks()]
    assert Status.MERGED == (await hubs[1].exchange(batch("node1.0", 2))).status
    for hub in hubs:
        await hub.close()


def _rejected(fleet: MqttFleet, expected: int) -> bool:
    return expected == sum(hub.rejects.total() for hub in fleet.hubs)


def test_what_the_broker_has_kept_for_newcomers_is_of_no_use(mosquitto: Mosquitto) -> None:
    """Apart from the newest claim, nothing is kept by members, so whatever else there is was left by somebody else."""

    async def tried() -> None:
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

    asyncio.run(tried())


def test_a_fleet_survives_the_highest_claim_there_is(mosquitto: Mosquitto) -> None:
    """Whoever may write to the claims can unseat a member, and no more than that: names decide from there on."""

    async def tried() -> None:
        fleet = MqttFleet(mosquitto.url)
        hub = fleet.join()
        await hub.exchange(batch())
        async with aiomqtt.Client("127.0.0.1", mosquitto.port) as attacker:
            claim = letters.write_claim(Claim(TERM_MAX, STRANGER, 1))
            await attacker.publish(f"{fleet.namespace}/rc/v1/0/claims", claim, qos=1)
        await eventually_in_loop(lambda: not fleet.ledgers(), "the member is unseated")
        (desk,) = fleet.desks()

        assert Status.MERGED == (await hub.exchange(batch(sequence=2))).status
        assert desk.election.member == desk.election.steward
        await hub.close()

    asyncio.run(tried())


def test_only_whoever_was_asked_can_answer() -> None:
    """An answer by another member, to another question, or after the time for it, is not taken in."""

    async def tried() -> None:
        sent: list[tuple[str, Kind]] = []
        clock = ManualClock(1_740_000_000.0)
        rejects: Counter[str] = Counter()
        steward = Steward(clock, random=Random(1), new_name=lambda: "data")
        steward.election.join("a" * 20, 0)
        steward.election.hear(Claim(1, STRANGER, 1, answers=True), 0)

        def post(whom: str, kind: Kind, payload: bytes) -> bool:
            sent.append((whom, kind))
            return True

        desk = Desk(0, steward, clock=clock, wait_ns=WAIT_NS, post=post, rejects=rejects)
        asking = asyncio.ensure_future(desk.exchange(batch(), 30.0))
        await asyncio.sleep(0)
        assert [(STRANGER, Kind.BATCH)] == sent
        desk.hear(Kind.ANSWER, "b" * 20, good()["answer"])
        desk.hear(Kind.ANSWER, STRANGER, letters.write_answer(batch(sequence=2), MERGED))
        clock.advance_ns(WAIT_NS + 1)
        desk.hear(Kind.ANSWER, STRANGER, good()["answer"])
        await asyncio.sleep(0)

        assert not asking.done()
        assert {"unasked": 2, "late": 1} == rejects

        second = asyncio.ensure_future(desk.exchange(batch(sequence=3), 30.0))
        await asyncio.sleep(0)
        desk.hear(Kind.ANSWER, STRANGER, letters.write_answer(batch(sequence=3), MERGED))
        assert "known" == (await second).incarnation
        asking.cancel()

    asyncio.run(tried())
