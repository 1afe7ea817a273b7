"""Writes the usage of a shard in parts, as a leader hands it over to its successor, and reads these parts.

The parts of the usage come before those of the ledger, in messages of their own. A member of an older version does not
know them and takes over only the ledger; then nodes report their usage again to the next leader that keeps usage.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from typing import Any, Final, cast

import msgpack

from reconverge.errors import ONE_VERSION, HubUnavailable
from reconverge.hub.usage import KINDS, OTHERS, PAGES, Counts, Period, UsageKey
from reconverge_sync.merge.usage import UsageState
from reconverge_sync.mqtt.calling.calls import read_counts, read_key, read_load, read_period, reported_load
from reconverge_sync.mqtt.election import TERM_MAX
from reconverge_sync.mqtt.messages import MalformedMessage, MessageKind, body, is_text, is_whole, sealed

FORMAT: Final = 1
"""The number of the parts' format."""
PART_BYTES_WANTED: Final = 1 << 16
"""The size of a part in bytes, about, so that writing or reading a part takes little time."""
PARTS_MAX: Final = 1 << 16
ITEMS_MAX: Final = 1 << 16
"""The most items in one part."""
_PART: Final = Struct("<QIBH")
"""The head of a part: the term, the number of the part, whether it is the last, and the format."""
_BYTES_EACH: Final = 4
"""The most bytes that one character takes in UTF-8."""

Item = list[Any]


def write_usage(state: UsageState, term: int) -> Iterator[bytes]:
    """Yields the parts of the usage, each written when the caller asks for it. The usage must not change meanwhile.

    Raises HubUnavailable if the usage is too large to be handed over.
    """
    number = 0
    waiting: list[Item] | None = None
    for part in _in_parts(_items(state)):
        if waiting is not None:
            yield _written(term, number, waiting, last=False)
            number += 1
        waiting = part
    yield _written(term, number, waiting or [], last=True)


def _written(term: int, number: int, part: list[Item], *, last: bool) -> bytes:
    if number >= PARTS_MAX:
        problem = f"usage of more than {PARTS_MAX} parts cannot be handed over to the next leader; keep fewer periods"
        raise HubUnavailable("protocol", problem)
    try:
        packed = cast("bytes", msgpack.packb(part, unicode_errors="surrogatepass"))
    except (OverflowError, ValueError):
        problem = f"part {number} of the usage has a number of more than 64 bits, and cannot be handed over"
        raise HubUnavailable("protocol", f"{problem}; {ONE_VERSION}") from None
    return sealed(MessageKind.USAGE, _PART.pack(term, number, last, FORMAT) + packed)


def _items(state: UsageState) -> Iterator[Item]:
    for name in ("first", "closed", "done"):
        yield [name, dict(getattr(state, name))]
    yield from (["late", *period, mark] for period, mark in state.late.items())
    yield from (["load", *reported_load(load)] for load in state.loads.values())
    yield from (["leader", kind, *held] for kind, held in state.leader.items())
    yield from (["account", name, sequence] for name, sequence in state.sequences.items())
    for account, periods in state.own.items():
        for period, rows in periods.items():
            yield from (["own", account, *period, *key, *counts] for key, counts in rows.items())
    for period, pages in state.pages.items():
        for number, page in enumerate(pages):
            at = [*period, number]
            yield from (["total", *at, *key, *counts] for key, counts in page.totals.items())
            yield from (["issued", *at, *key, count, *said] for key, (count, said) in page.issued.items())
            yield from (["pending", *at, *key, count, *said] for (key, count), said in page.pending.items())


def _in_parts(items: Iterable[Item]) -> Iterator[list[Item]]:
    part: list[Item] = []
    size = 0
    for item in items:
        bytes_max = 50 + _BYTES_EACH * sum(len(each) for each in item if isinstance(each, str))
        if part and (size + bytes_max > PART_BYTES_WANTED or len(part) >= ITEMS_MAX):
            yield part
            part, size = [], 0
        part.append(item)
        size += bytes_max
    yield part


class UsageReader:
    """Puts the usage together from the parts in which one member sends it, one after the other."""

    def __init__(self) -> None:
        self._state = UsageState()
        self._term = 0
        self._next = 0
        self._take: dict[str, Callable[[Item], None]] = {
            "first": lambda rest: self._take_marks(self._state.first, rest),
            "closed": lambda rest: self._take_marks(self._state.closed, rest),
            "done": lambda rest: self._take_marks(self._state.done, rest),
            "late": self._take_late,
            "load": self._take_load,
            "leader": self._take_leader,
            "account": self._take_account,
            "own": self._take_own,
            "total": self._take_total,
            "issued": self._take_issued,
            "pending": self._take_pending,
        }

    def read(self, payload: bytes) -> tuple[int, UsageState] | None:
        """Reads the next part; after the last part, returns the term and the whole usage, and before that None.

        Raises MalformedMessage; after that the reader cannot be used any more.
        """
        content = body(payload, MessageKind.USAGE)
        try:
            term, number, last, form = _PART.unpack_from(content)
            rest = content[_PART.size :]
            items = msgpack.unpackb(rest, strict_map_key=True, unicode_errors="surrogatepass")
        except (ValueError, TypeError, RecursionError, struct.error, msgpack.UnpackException):
            raise MalformedMessage("usage", f"a part of {len(content)} bytes of usage cannot be decoded") from None
        if form != FORMAT:
            raise MalformedMessage("schema", f"the usage has the format {form}, not {FORMAT}; update all members")
        if number == 0:
            self._term = term
        _check((term, number) == (self._term, self._next) and 1 <= term <= TERM_MAX and number < PARTS_MAX)
        _check(last <= 1 and type(items) is list and len(items) <= ITEMS_MAX)
        for item in cast("list[Item]", items):
            _check(type(item) is list and len(item) > 1 and type(item[0]) is str and item[0] in self._take)
            self._take[item[0]](item[1:])
        self._next += 1
        return (term, self._state) if last else None

    def _take_marks(self, marks: dict[str, int], rest: Item) -> None:
        (done,) = _exactly(1, rest)
        _check(type(done) is dict and all(kind in KINDS and is_whole(number) for kind, number in done.items()))
        marks.update(done)

    def _take_late(self, rest: Item) -> None:
        period, mark = read_period(rest[:2]), _exactly(3, rest)[2]
        _check(is_whole(mark, 1))
        self._state.late[period] = mark

    def _take_load(self, rest: Item) -> None:
        load = read_load(rest)
        self._state.loads[load.node] = load

    def _take_leader(self, rest: Item) -> None:
        kind, exporter, until_us = _exactly(3, rest)
        _check(kind in KINDS and is_text(exporter) and is_whole(until_us))
        self._state.leader[kind] = exporter, until_us

    def _take_account(self, rest: Item) -> None:
        name, sequence = _exactly(2, rest)
        _check(is_text(name, 1) and is_whole(sequence, 1))
        self._state.sequences[name] = sequence

    def _take_own(self, rest: Item) -> None:
        account, kind, number, *row = _exactly(9, rest)
        _check(is_text(account, 1))
        rows = self._state.own.setdefault(account, {}).setdefault(read_period([kind, number]), {})
        rows[read_key(row[:3])] = read_counts(row[3:])

    def _take_total(self, rest: Item) -> None:
        period, number, key = _place(_exactly(9, rest))
        page = self._state.pages_of(period)[number]
        page.rows += key.identity != OTHERS and key not in page.totals
        page.totals[key] = read_counts(rest[6:])

    def _take_issued(self, rest: Item) -> None:
        period, number, key = _place(_exactly(10, rest))
        self._state.pages_of(period)[number].issued[key] = _numbered(rest)

    def _take_pending(self, rest: Item) -> None:
        period, number, key = _place(_exactly(10, rest))
        count, counts = _numbered(rest)
        self._state.pages_of(period)[number].pending[key, count] = counts


def _place(rest: Item) -> tuple[Period, int, UsageKey]:
    _check(is_whole(rest[2]) and rest[2] < PAGES)
    return read_period(rest[:2]), rest[2], read_key(rest[3:6])


def _numbered(rest: Item) -> tuple[int, Counts]:
    _check(is_whole(rest[6]))
    return rest[6], read_counts(rest[7:])


def _exactly(count: int, rest: Item) -> Item:
    _check(len(rest) == count)
    return rest


def _check(fits: bool) -> None:  # noqa: FBT001  # it reads like an assertion
    if not fits:
        raise MalformedMessage("usage", "the usage in it has a value of a wrong type, out of range or out of order")
