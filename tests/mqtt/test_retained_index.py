"""Goal: of several that write the index of contracts one wins, and what a stranger writes displaces nothing.

Method: leaders whose topic the test delivers message by message; and hostile messages at a real mosquitto.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

import aiomqtt
import pytest

from reconverge.clock import SECOND_NS, SystemClock
from reconverge.contracts.store.index import LIFETIME_MAX_S
from reconverge.errors import HubUnavailable
from reconverge_sync.mqtt.election import TERM_MAX
from reconverge_sync.mqtt.messages import BYTES_MAX, MalformedMessage, MessageKind, sealed
from reconverge_sync.mqtt.retained import contracts
from reconverge_sync.mqtt.retained.contracts import NUMBERS_PASSED_MAX, PostedIndex, Stamp, write_index
from tests.support.brokers import Mosquitto
from tests.support.hubs.fleet_on_mqtt import TIMEOUT_S, MqttFleet
from tests.support.poison import batch
from tests.support.waiting import eventually_in_loop

PAGE: Final = b"a page"
DIGEST: Final = sha256(PAGE).hexdigest()
KEEP_S: Final = 3600
MAX: Final = 1000
FAR: Final = 1 << 40
CLAIMED: Final = 9
"""The highest term that any member has claimed."""


class Topic:
    """A topic of a broker with members at it: a message comes to all of them, in order, when the loop has its turn."""

    def __init__(self) -> None:
        self.members: list[PostedIndex] = []
        self.under_way: deque[bytes] = deque()
        self.retained = b""

    def leader(self, *, term: int = 7, answers: bool = True, wait_ns: int = 30 * SECOND_NS) -> PostedIndex:
        """One more member, which thinks that it is the leader."""
        index = PostedIndex(
            self,
            SystemClock(),
            wait_ns=wait_ns,
            term=lambda: term,
            claimed=lambda: max(CLAIMED, term),
            may_answer=lambda within_ns: answers or not within_ns,
        )
        self.members.append(index)
        return index

    def post(self, topic: str, payload: bytes, *, retain: bool, keep_s: float | None = None) -> None:
        assert (topic, keep_s is None) == ("contracts", not retain)
        self.under_way.append(payload)
        if retain:
            self.retained = payload
        asyncio.get_running_loop().call_soon(self.deliver)

    def deliver(self) -> None:
        """The oldest message comes."""
        if self.under_way:
            message = self.under_way.popleft()
            for member in self.members:
                member.hear(message)

    def shown(self, topic: str) -> str:
        return topic

    async def subscribe(self, topics: Sequence[str]) -> None:
        """Does nothing."""

    def unsubscribe(self, topics: Sequence[str]) -> None:
        """Does nothing."""

    async def echoed(self) -> None:
        """Does nothing."""


async def swap(index: PostedIndex, payload: bytes, over: bytes | None) -> bool:
    """Replace an index."""
    return await index.swap([payload, over, MAX, KEEP_S])


async def test_of_two_writers_of_one_version_one_succeeds() -> None:
    """Though both have read the same, and ask at once; what the one has written is what is retained."""
    topic = Topic()
    leader = topic.leader()
    assert await swap(leader, b"first", None)

    done = await asyncio.gather(swap(leader, b"one", b"first"), swap(leader, b"other", b"first"))

    assert [True, False] == list(done)
    assert b"one" == leader.read(MAX)
    assert topic.retained.endswith(b"one")


async def test_what_is_under_way_is_heard_before_a_leader_compares() -> None:
    """The leader before has written it; a fence comes after it on the same topic."""
    topic = Topic()
    leader = topic.leader()
    topic.under_way.append(write_index(Stamp(6, 1), FAR, b"written"))
    asyncio.get_running_loop().call_later(0.01, topic.deliver)

    assert not await swap(leader, b"unseen", None)
    assert b"written" == leader.read(MAX)


async def test_a_leader_that_may_not_answer_any_more_writes_nothing() -> None:
    """Another one may have compared and written meanwhile."""
    topic = Topic()
    leader = topic.leader(answers=False)

    with pytest.raises(HubUnavailable) as raised:
        await swap(leader, b"late", None)

    assert ("timeout", False, b"") == (raised.value.kind, raised.value.applied, topic.retained)


# ------------------------------------------------------------ strangers


@pytest.mark.parametrize(
    ("stamp", "fits"),
    [
        (Stamp(7, 2), True),
        (Stamp(7, 1 + NUMBERS_PASSED_MAX), True),
        (Stamp(7, 2 + NUMBERS_PASSED_MAX), False),
        (Stamp(CLAIMED, NUMBERS_PASSED_MAX), True),
        (Stamp(CLAIMED, 1 + NUMBERS_PASSED_MAX), False),
        (Stamp(CLAIMED + 1, 1), False),
        (Stamp(TERM_MAX, 2**53), False),
    ],
)
async def test_no_stamp_is_taken_in_that_no_leader_can_have_written(stamp: Stamp, fits: bool) -> None:
    """The leader has what it knows retained again."""
    topic = Topic()
    leader = topic.leader()
    assert await swap(leader, b"real", None)
    real, topic.retained = topic.retained, b""

    if fits:
        leader.hear(write_index(stamp, FAR, b"next"))
    else:
        with pytest.raises(MalformedMessage, match="stamp"):
            leader.hear(write_index(stamp, FAR, b"forged"))

    assert (b"next" if fits else b"real") == leader.read(MAX)
    assert (b"" if fits else real) == topic.retained


async def test_a_member_that_knows_no_index_takes_in_the_one_that_is_retained() -> None:
    """Claims may have been lost with a broker; the next leader's index has a higher stamp all the same."""
    topic = Topic()
    leader = topic.leader(term=CLAIMED + 2)
    leader.hear(write_index(Stamp(CLAIMED + 1, 2**53), FAR, b"of whatever sender"))

    assert await swap(leader, b"real", b"of whatever sender")
    assert b"real" == leader.read(MAX)


async def test_a_forged_index_displaces_the_real_one_for_no_member(mosquitto: Mosquitto) -> None:
    """With the highest stamp of all, or too long: it is counted and told, and the real one is retained again."""
    fleet = MqttFleet(mosquitto.url)
    leader, other = fleet.join(), fleet.join()
    await leader.exchange(batch("node1.0"))
    await other.exchange(batch("node2.0"))
    assert await other.swap_index(b"real", over=None, bytes_max=MAX, keep_s=KEEP_S)
    forged = write_index(Stamp(TERM_MAX, 2**53), FAR, b"forged")
    long = write_index(Stamp(1, 2), FAR, b"long") + bytes(BYTES_MAX[MessageKind.INDEX])
    async with aiomqtt.Client("127.0.0.1", mosquitto.port) as stranger:
        for message in (long, forged):
            await stranger.publish(f"{fleet.namespace}/rc/v1/contracts", message, qos=1, retain=True)
        for hub in (leader, other):
            await eventually_in_loop(lambda hub=hub: hub.rejects["stamp"] and hub.rejects["size"], "both have come")  # type: ignore[misc]
    late = fleet.join()

    async def reads_the_real_one() -> bool:
        read = await late.read_index(bytes_max=MAX)
        await late.close()
        return read == b"real"

    async with asyncio.timeout(TIMEOUT_S):
        while not await reads_the_real_one():
            pass
    assert [b"real"] * 2 == [await hub.read_index(bytes_max=MAX) for hub in (leader, other)]
    assert await other.swap_index(b"next", over=b"real", bytes_max=MAX, keep_s=KEEP_S)
    for hub in (other, leader):
        await hub.close()


def test_pages_may_be_kept_for_as_long_as_contracts_may_last() -> None:
    """And for the eighth that they are kept longer than was said; an eighth is left for clocks that are wrong."""
    assert contracts.KEPT_S_MAX == LIFETIME_MAX_S * 5 // 4


async def test_more_pages_than_contracts_have_are_counted(
    mosquitto: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the leader looks for pages that are over; those that are no page, or are kept for ever, are deleted."""
    monkeypatch.setattr(contracts, "PAGES_MAX", 3)

    fleet = MqttFleet(mosquitto.url)
    hub = fleet.join()
    await hub.put_page(DIGEST, PAGE, keep_s=KEEP_S)
    until_s = SystemClock.wall_ns() // SECOND_NS + KEEP_S
    pages_put = {
        f"{number:064x}": sealed(MessageKind.PAGE, until_s.to_bytes(8, "little") + PAGE) for number in range(4)
    }
    for_ever = sealed(MessageKind.PAGE, FAR.to_bytes(8, "little") + PAGE)
    pages_put |= {"e" * 64: for_ever, "f" * 64: for_ever + bytes(BYTES_MAX[MessageKind.PAGE])}
    async with aiomqtt.Client("127.0.0.1", mosquitto.port) as stranger:
        for digest, page in pages_put.items():
            await stranger.publish(f"{fleet.namespace}/rc/v1/page/{digest}", page, qos=1, retain=True)
    pages = hub.membership().retained.pages

    assert 2 == await pages.sweep()
    assert 4 == hub.rejects["pages"]
    assert {} == pages._heard
    assert PAGE == await hub.get_page(DIGEST, bytes_max=MAX)
    assert None is await hub.get_page("f" * 64, bytes_max=MAX)
    await hub.close()
