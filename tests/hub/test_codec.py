"""Goal: whatever a server answers, a hub makes an answer of it or raises HubUnavailable, and nothing else.

Method: random bytes, real answers with random damage, headers that promise what is not there; and all of that once more
through a socket. The bytes are laid out here once more, from what codec.py says of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import pack, unpack
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconverge.clock import ManualClock, SystemClock
from reconverge.errors import HubUnavailable
from reconverge.hub.registry import HubSettings
from reconverge.hub.report import SCHEMA_VERSION, Answer, CellAnswer, Recall, Status, Totals
from reconverge.testing.claims.scenes.scene import START_S, Scene, limit
from reconverge_sync.codec import ANSWER_BYTES_MAX, decode_accounts, decode_answer, encode_answer, encode_batch
from reconverge_sync.memory import MemoryHub
from reconverge_sync.redis.hub import RedisHub
from tests.support.hubs.parrot import Parrot

WHOLE = st.integers(-(2**63), 2**64 - 1)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | WHOLE | st.floats() | st.text(max_size=8) | st.binary(max_size=8),
    lambda inside: st.lists(inside, max_size=5) | st.dictionaries(st.text(max_size=4), inside, max_size=3),
    max_leaves=20,
)


def _real_answer() -> bytes:
    """Returns a hub's answer about two cells."""
    hub = MemoryHub(clock=ManualClock(START_S), new_name=lambda: "abcdef")
    voice = Scene(hub, ManualClock(START_S), join=lambda known: known).voice()
    answer = hub.merge(voice.batch(voice.cell("ada", need=30), voice.cell("bob", current=3)))
    return _encoded(answer)


def _encoded(answer: Answer, *, wide: bool = False, version: int = SCHEMA_VERSION) -> bytes:
    """An answer as a hub says it."""
    counts = 8 if wide else 4, len(answer.cells)
    header = pack("<HBBIqI", version, answer.status, *counts, answer.hub_us, answer.nodes)
    rows = [pack("<16q" if wide else "<q14iq", *cell) for cell in answer.cells]
    return header + b"".join(rows) + answer.generation.encode()


def _packed(value: object) -> bytes:
    packed: bytes = msgpack.packb(value)
    return packed


REAL = _real_answer()


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A real answer of which some bytes were changed, lost, or said twice."""
    payload = bytearray(REAL)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(payload) - 1)) if payload else 0
        match draw(st.sampled_from(["change", "lose", "repeat", "cut"])):
            case "change":
                payload[place : place + 1] = bytes([draw(st.integers(0, 255))])
            case "lose":
                del payload[place : place + draw(st.integers(1, 20))]
            case "repeat":
                payload[place:place] = payload[place : place + draw(st.integers(1, 20))]
            case _:
                del payload[place:]
    return bytes(payload)


def test_a_real_answer_is_read_as_it_was_written() -> None:
    """To the last number."""
    answer = decode_answer(REAL)

    assert ("abcdef", Status.MERGED, 2) == (answer.generation, answer.status, len(answer.cells))
    assert answer.cells[0].allowance >= 30
    assert 3 == answer.cells[1].current


@given(st.binary(max_size=200) | damaged() | VALUES.map(_packed))
def test_a_damaged_answer_is_a_protocol_error(payload: bytes) -> None:
    """Or, if the damage leaves something that makes sense, an answer of whole numbers."""
    _check_answer(payload)


@given(
    version=st.sampled_from([SCHEMA_VERSION] * 5 + [SCHEMA_VERSION - 1, 2**16 - 1]),
    status=st.integers(0, 3) | st.just(255),
    amount_bytes=st.sampled_from([4, 8, 0, 1, 255]),
    rows=st.integers(0, 3) | st.sampled_from([2**16, 2**32 - 1]),
    rest=st.sampled_from([0, 71, 72, 73, 144, 216, 127, 128, 256]).flatmap(lambda size: st.binary(max_size=size)),
)
def test_a_header_that_promises_anything_is_an_answer_or_a_protocol_error(
    version: int, status: int, amount_bytes: int, rows: int, rest: bytes
) -> None:
    """Rows that are not there, of a size that there is not, with a status that nobody knows."""
    _check_answer(pack("<HBBIq", version, status, amount_bytes, rows, 7) + rest)


@pytest.mark.parametrize("wrong", [True, 1.0, "1", None, [], b"1"])
def test_what_is_no_whole_number_is_a_protocol_error(wrong: object) -> None:
    """In an account; in an answer there is room for nothing else."""
    for account in ([1, "a", wrong, 0], [1, "a", 0, wrong]):
        with pytest.raises(HubUnavailable, match=r"^protocol: "):
            decode_accounts({b"x": _packed(account)})


@pytest.mark.parametrize("name", [True, 1, None, [], b"a"])
def test_a_name_that_is_no_text_is_a_protocol_error(name: object) -> None:
    """Whoever reads totals looks for names."""
    with pytest.raises(HubUnavailable, match=r"^protocol: "):
        decode_accounts({b"x": _packed([1, name, 2, 3])})


@pytest.mark.parametrize("answer", [None, 7, "OK", [], [b"x"], b"", {}, True, ValueError("x")])
def test_an_answer_that_is_no_string_of_bytes_is_a_protocol_error(answer: object) -> None:
    """A proxy may say OK to everything."""
    with pytest.raises(HubUnavailable, match=r"^protocol: "):
        decode_answer(answer)


@pytest.mark.parametrize("version", [0, SCHEMA_VERSION - 1, SCHEMA_VERSION + 1])
def test_another_version_is_a_protocol_error_that_says_so(version: int) -> None:
    """Nodes of two versions meet during a deployment."""
    with pytest.raises(HubUnavailable, match=r"^protocol: .*schema"):
        decode_answer(_encoded(Answer(0, "x", Status.MERGED, ()), version=version))


@pytest.mark.parametrize("rows", [3, 255, 2**32 - 1])
def test_rows_that_are_not_there_are_a_protocol_error(rows: int) -> None:
    """Though all that is there makes sense; a header that was damaged may promise anything."""
    payload = bytearray(REAL)
    payload[4:8] = pack("<I", rows)

    with pytest.raises(HubUnavailable, match=f"^protocol: .*the header promises {rows} rows, but"):
        decode_answer(bytes(payload))


@given(st.lists(st.builds(Recall, st.text(max_size=9), st.text(max_size=9), st.integers(0, 2**53)), max_size=3))
def test_recalls_are_read_as_they_were_written(recalls: list[Recall]) -> None:
    """Behind the generation; nothing is written if there are none."""
    answer = Answer(7, "abc", Status.MERGED, (), tuple(recalls))
    written = encode_answer(answer)

    assert answer == decode_answer(written)
    assert written.endswith(b"abc") == (not recalls)


@pytest.mark.parametrize("wrong", [b"\xc1", _packed(7), _packed([7]), _packed([["api"]]), _packed([["api", 7, 7]])])
def test_recalls_that_cannot_be_read_are_a_protocol_error(wrong: bytes) -> None:
    """As all else in an answer."""
    with pytest.raises(HubUnavailable, match=r"^protocol: "):
        decode_answer(encode_answer(Answer(7, "abc", Status.MERGED, ())) + b"\0" + wrong)


@given(st.lists(st.lists(st.integers(-(2**53), 2**53), min_size=16, max_size=16).map(CellAnswer._make), max_size=5))
def test_large_amounts_are_read_as_they_were_written(cells: list[CellAnswer]) -> None:
    """In rows that have room for them."""
    answer = Answer(2**53, "abc", Status.MERGED, tuple(cells), (), 2**32 - 1)

    assert answer == decode_answer(_encoded(answer, wide=True))


def test_rows_are_wide_only_if_a_number_needs_it() -> None:
    """All rows of a batch have one width, so that each is found by its place."""
    scene = Scene(MemoryHub(), SystemClock(), join=lambda known: known)
    voice = scene.voice()
    small = [voice.cell("ada", current=2**31 - 1), voice.cell("bob", allowance=2**32 - 1)]
    large = [voice.cell("ada", current=2**31), voice.cell("bob", allowance=2**32)]

    assert 2 * 60 == len(encode_batch(voice.batch(*small), "x", certainly_new=False)[1])
    for cell in large:
        assert 2 * 104 == len(encode_batch(voice.batch(small[0], cell), "x", certainly_new=False)[1])


@pytest.mark.parametrize("wrong", [1.5, float("nan"), "1", None, [1], 2**63])
def test_a_cell_that_cannot_travel_is_a_protocol_error(wrong: Any) -> None:
    """Nothing was sent, so nothing was applied."""
    voice = Scene(MemoryHub(), SystemClock(), join=lambda known: known).voice()
    batch = voice.batch(voice.cell("ada"))
    batch = batch._replace(cells=(batch.cells[0]._replace(need_milli=wrong),))

    with pytest.raises(HubUnavailable, match=r"^protocol: ") as raised:
        encode_batch(batch, "x", certainly_new=False)

    assert raised.value.applied is False


def test_an_answer_is_not_read_beyond_its_largest_size() -> None:
    """The size is looked at before anything is unpacked, and 256 cells of the largest numbers fit well."""
    cell = CellAnswer._make([2**53] * len(CellAnswer._fields))
    largest = _encoded(Answer(2**53, "x" * 16, Status.MERGED, (cell,) * 256), wide=True)

    assert 256 == len(decode_answer(largest).cells)
    assert len(largest) < ANSWER_BYTES_MAX // 10
    with pytest.raises(HubUnavailable, match="the payload must have at most"):
        decode_answer(_encoded(Answer(0, "x" * ANSWER_BYTES_MAX, Status.MERGED, ())))


ACCOUNT = st.lists(st.tuples(st.text(max_size=4) | VALUES, WHOLE | VALUES, WHOLE | VALUES), max_size=2).map(
    lambda limits: _packed([7, *(part for limit in limits for part in limit)])
)


@given(st.dictionaries(st.binary(max_size=4), ACCOUNT | st.binary(max_size=60) | VALUES.map(_packed), max_size=3))
def test_damaged_accounts_are_a_protocol_error(accounts: dict[bytes, bytes]) -> None:
    """Or totals of whole numbers, by names."""
    problem: HubUnavailable | None = None
    totals: dict[str, Totals] = {}
    try:
        totals = decode_accounts(accounts)
    except HubUnavailable as error:
        problem = error

    assert problem is None or "protocol" == problem.kind
    assert all(isinstance(name, str) for name in totals)
    assert all(type(number) is int for numbers in totals.values() for number in numbers)


def test_accounts_are_summed_by_limit() -> None:
    """Each holds when it was last seen, and then a name and two numbers for each of its limits."""
    accounts = {b"one": _packed([9, "a", 5, 1, "b", 7, 0]), b"-": _packed([9, "a", 2, 2]), b"new": _packed([9])}

    assert {"a": Totals(7, 3), "b": Totals(7, 0)} == decode_accounts(accounts)


def test_a_batch_says_nothing_that_lua_cannot_count_with() -> None:
    """The largest numbers that a limit allows stay below 2**53, where the doubles of Lua end."""
    most = 10**12
    voice = Scene(MemoryHub(), SystemClock(), join=lambda known: known).voice()
    said = voice.cell(of=limit(quota=most), current=most, previous=1000 * most, need=most)

    shared, rows = encode_batch(voice.batch(said), "x", certainly_new=False)

    assert max(*_numbers_in(msgpack.unpackb(shared)), *unpack("<13q", rows)) < 2**53


@pytest.fixture(scope="module")
def parrot() -> Iterator[Parrot]:
    """A server that says the same to everything."""
    with Parrot() as server:
        yield server


BULK = (st.binary(max_size=60) | damaged() | VALUES.map(_packed)).map(lambda body: b"$%d\r\n%b\r\n" % (len(body), body))
LINES = st.sampled_from(
    [b"+OK", b":5", b"$-1", b"*0", b"*-1", b"_", b"#t", b",1.5", b"%1", b"HTTP/1.1 400 Bad Request"]
)


@given(
    BULK | LINES.map(lambda line: line + b"\r\n") | st.binary(min_size=1, max_size=40).map(lambda said: said + b"\r\n")
)
async def test_whatever_a_server_says_a_hub_raises_nothing_but_hub_unavailable(parrot: Parrot, said: bytes) -> None:
    """Neither an exchange nor the totals, be it another server altogether."""
    parrot.reply = said

    hub = RedisHub(parrot.url, HubSettings("shop", 0.05))
    voice = Scene(hub, SystemClock(), join=lambda known: known).voice()
    raised: set[type[BaseException]] = set()
    for question in (hub.exchange(voice.batch()), hub.totals()):
        try:
            await question
        except Exception as error:  # noqa: BLE001 - all of them are the claim
            raised.add(type(error))
    await hub.close()

    assert raised <= {HubUnavailable}


def _check_answer(payload: bytes) -> None:
    """Raise AssertionError unless that is an answer, or is refused as none."""
    problem: HubUnavailable | None = None
    answer = Answer(0, "", Status.MERGED, ())
    try:
        answer = decode_answer(payload)
    except HubUnavailable as error:
        problem = error

    assert problem is None or ("protocol" == problem.kind and len(str(problem)) < 400)
    assert isinstance(answer.status, Status)
    assert isinstance(answer.generation, str)
    assert type(answer.hub_us) is int
    assert all(type(number) is int for cell in answer.cells for number in cell)


def _numbers_in(value: object) -> Iterator[int]:
    if isinstance(value, int):
        yield value
    elif isinstance(value, list):
        for part in value:
            yield from _numbers_in(part)
