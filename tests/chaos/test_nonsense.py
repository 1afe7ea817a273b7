"""Goal: what the lying proxy and the hub object that is not ours say is nonsense, and nothing else is changed.

Method: replies by hand, and a real server behind the proxy.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest
import redis.asyncio

from chaos.faults.nonsense import BYTES, COUNTS, ROWS, TIME, TYPES, LyingProxy, ThirdPartyHub, bulk, lie, reply_end
from reconverge.hub.report import Answer, Batch, CellAnswer, Status
from reconverge_sync.codec import decode_answer, encode_answer
from reconverge_sync.memory import MemoryHub
from tests.support.servers import RedisServer

REPLIES = (
    b"+OK\r\n",
    b":12\r\n",
    b"-ERR no\r\n",
    b"$-1\r\n",
    b"$5\r\na\r\nb\r\r\n",
    b"*2\r\n:1\r\n$2\r\nab\r\n",
    b"*-1\r\n",
    b"%1\r\n+a\r\n*1\r\n_\r\n",
)
ANSWER = Answer(1_750_000_000_000_000, "one", Status.MERGED, (CellAnswer(*range(16)),))


@pytest.mark.parametrize("reply", REPLIES)
def test_a_reply_ends_where_it_ends(reply: bytes) -> None:
    """With another one behind it, and not a byte before it is all there."""
    assert len(reply) == reply_end(reply + b":1\r\n")
    assert [None] * len(reply) == [reply_end(reply[:cut]) for cut in range(len(reply))]


@pytest.mark.parametrize("kind", [TIME, COUNTS, ROWS])
def test_a_lie_about_an_answer_is_an_answer_and_another_one(kind: str) -> None:
    """Its frame and its layout are right; what it says is not."""
    told = [lie(bulk(encode_answer(ANSWER)), kind, Random(seed)) for seed in range(50)]

    answers = [decode_answer(reply[reply.find(b"\r\n") + 2 : -2]) for reply in told]
    assert ANSWER not in answers
    assert all((answer.hub_us != ANSWER.hub_us) == (kind == TIME) for answer in answers)
    assert all((len(answer.cells) != 1) == (kind == ROWS) for answer in answers)


@pytest.mark.parametrize("kind", [TYPES, BYTES])
def test_a_lie_about_anything_is_something_else(kind: str) -> None:
    """Another type, or other bytes."""
    assert all(lie(bulk(b"payload"), kind, Random(seed)) != bulk(b"payload") for seed in range(50))


def test_the_truth_is_passed_on_until_lies_are_told_and_again_afterwards(redis_server: RedisServer) -> None:
    """By a proxy in front of a real server; numbers stay numbers when the lie is about counts."""

    async def live() -> tuple[int, int, int, int]:
        proxy = LyingProxy(redis_server.port, Random(1))
        await proxy.start()
        client = redis.asyncio.Redis(port=proxy.port)
        before = await client.incr("n")
        proxy.kinds = (COUNTS,)
        lied = await client.incr("n")
        proxy.kinds = ()
        after = await client.incr("n")
        await client.aclose()
        await proxy.stop()
        return before, lied, after, proxy.lied

    before, lied, after, told = asyncio.run(live())

    assert (1, 3, 1) == (before, after, told)
    assert lied != 2


def test_a_hub_object_merges_and_answers_nonsense_only_while_it_is_told_to() -> None:
    """Requests are passed on in any case; each promise is broken in turn."""

    async def live() -> tuple[set[str], int]:
        hub = ThirdPartyHub(MemoryHub(), Random(1))
        batch = Batch("n", "n", 0, 1, "", 100_000, 1_000_000, False, (), ())
        assert isinstance(await hub.exchange(batch), Answer)
        hub.lies = True
        raised: set[str] = set()
        for number in range(60):
            try:
                await asyncio.wait_for(hub.exchange(batch._replace(sequence=2 + number)), 0.01)
            except Exception as error:  # noqa: BLE001  # whatever it is
                raised.add(type(error).__name__)
            except asyncio.CancelledError:
                raised.add("CancelledError")
        hub.lies = False
        assert isinstance(await hub.exchange(batch._replace(sequence=99)), Answer)
        return raised, hub.lied

    raised, told = asyncio.run(live())

    assert 60 == told
    assert {"ValueError", "RecursionError"} < raised
