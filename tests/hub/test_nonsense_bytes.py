"""Goal: whatever bytes come back from a Redis or a broker, a node exchanges again once whole answers come.

Method: a node under a clock that the test moves, whose hub packs each true answer as it travels, damages the bytes, and
has them read by the codec of Redis or by that of MQTT; and an agent with a server that says packed nonsense.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import pack_into
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconverge import Agent
from reconverge.errors import HubUnavailable
from reconverge.hub.report import Answer, Batch, Status
from reconverge.policies import STRICT
from reconverge.simulation.explore.node import LEASE_NS
from reconverge_sync.codec import ANSWER_HEADER, decode_answer, encode_answer
from reconverge_sync.mqtt.messages import MalformedMessage, read_answer, write_answer
from tests.hub.test_nonsense import LIMITS, RECOVERY_NS, Driven
from tests.support.hubs.parrot import Parrot
from tests.support.waiting import eventually

Damage = Callable[[bytearray], object]
SECOND_NS: Final = 10**9


def through_redis(answer: Answer, batch: Batch, damage: Damage) -> Answer:
    """The answer as a Redis would have said it."""
    payload = bytearray(encode_answer(answer))
    damage(payload)
    return decode_answer(bytes(payload))


def through_mqtt(answer: Answer, batch: Batch, damage: Damage) -> Answer:
    """The answer as it would have come by way of a broker; a letter that cannot be read is none."""
    payload = bytearray(write_answer(batch, answer))
    damage(payload)
    try:
        return read_answer(bytes(payload)).answer
    except MalformedMessage:
        raise HubUnavailable("timeout", "no letter that can be read") from None


def _damaged(driven: Driven, way: Callable[[Answer, Batch, Damage], Answer], damage: Damage, answer: Answer) -> Answer:
    return way(answer, driven.hub.told[-1], damage)


WAYS: Final = {"redis": through_redis, "mqtt": through_mqtt}


@st.composite
def damages(draw: st.DrawFn) -> Damage:
    """Bytes that are changed, a number that is replaced, and an end that is cut off or grows."""
    changes = draw(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=4))
    number = draw(st.none() | st.tuples(st.floats(0, 1, exclude_max=True), st.integers(-(2**63), 2**63 - 1)))
    kept = draw(st.sampled_from([1.0, 1.0, 1.0, 0.5, 0.99, 0.0]))
    more = draw(st.sampled_from([b"", b"", b"x", b"\xff" * 200]))

    def damage(payload: bytearray) -> None:
        for where, value in changes:
            payload[int(where * len(payload))] = value
        if number is not None:
            pack_into("<q", payload, int(number[0] * (len(payload) - 8)), number[1])
        del payload[round(kept * len(payload)) :]
        payload += more

    return damage


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@given(damaged=st.lists(damages(), min_size=1, max_size=4), limit=st.sampled_from(sorted(LIMITS)))
@settings(deadline=None)
def test_a_node_exchanges_again_after_damaged_bytes(way: str, damaged: list[Damage], limit: str) -> None:
    """There is no bug, and once whole answers come again the node is ready and has told all."""
    driven = Driven(LIMITS[limit], STRICT)
    for damage in damaged:
        driven.hears(partial(_damaged, driven, WAYS[way], damage), 1)

    driven.goes_on((RECOVERY_NS + LEASE_NS) / SECOND_NS)
    driven.uses()
    driven.goes_on(1.0)

    assert 0 == driven.exchanges.bugs
    assert set(driven.failures) <= {"protocol", "timeout", "stale", "lapsed"}
    assert not driven.node.syncer.failing
    assert driven.node.in_lease


def test_packed_nonsense_of_a_server_is_a_failure_of_the_protocol() -> None:
    """A server that says a time of 2**62 in every answer: the agent goes on asking, and `health` names the class."""
    payload = bytearray(encode_answer(Answer(0, "data", Status.MERGED, ())))
    ANSWER_HEADER.pack_into(payload, 0, *ANSWER_HEADER.unpack_from(payload)[:-2], 2**62, 1)
    with (
        Parrot(b"$%d\r\n%s\r\n" % (len(payload), payload)) as parrot,
        Agent(parrot.url, sync_interval=0.01, exchange_timeout=5.0) as agent,
    ):
        eventually(lambda: agent.stats().exchanges[0].failures.get("protocol", 0) > 3, "several answers")
        health = agent.health()

    assert "the last with 'protocol'" in health.grounds[0]
    assert 0 == agent.stats().bugs
