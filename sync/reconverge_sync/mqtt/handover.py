"""Writes a ledger in parts, as a leader hands it over to its successor, and reads these parts.

A part begins with the term of the leader's claim, the part's own number, and the number of parts. The rest is an array
in msgpack of items: the shard's own fields, nodes, accounts and cells. The reader does not trust the sums in it: all
entries of a cell are added up anew when a report about the cell comes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import astuple, fields
from math import isfinite
from struct import Struct
from typing import Any, Final, cast

import msgpack

from reconverge.errors import ONE_VERSION, HubUnavailable
from reconverge.hub.checking.answers import shown
from reconverge.hub.report import SCHEMA_VERSION, Totals
from reconverge_sync.merge.ledger import DEPARTED, Account, Entry, LedgerCell, NodeRecord
from reconverge_sync.merge.rule import LedgerShard
from reconverge_sync.mqtt.election import TERM_MAX, LeaderClaim
from reconverge_sync.mqtt.messages import KEY_BYTES_MAX, MalformedMessage, MessageKind, body, is_text, is_whole, sealed

ROWS_AT_ONCE: Final = 100
"""The most nodes, accounts and entries in one part of a ledger, more or less, so that writing or reading a part takes
little time."""
PARTS_MAX: Final = 1 << 16
VARIANT_BYTES_MAX: Final = 320
SUM_MAX: Final = 2**62
"""The largest sum or moment in a ledger; it may exceed the largest number of a batch."""
_PART: Final = Struct("<QIIH")
"""The head of a part: the term, the number of the part, the number of all parts, and the schema."""
_META: Final = tuple(
    field.name
    for field in fields(LedgerShard)
    if field.name not in ("nodes", "accounts", "cells", "lending", "recalls", "cells_max", "live", "openings")
)
_ENTRY: Final = tuple(field.name for field in fields(Entry))
_CELL: Final = tuple(field.name for field in fields(LedgerCell) if field.name not in ("entries", "spare_milli"))
_SIGNED: Final = frozenset({"epoch", "current", "fill_milli"})

Item = list[Any]


def write_ledger(ledger: LedgerShard, term: int) -> Iterator[bytes]:
    """Yields the parts of a ledger, each written when asked for. Raises HubUnavailable if the ledger is too large."""
    pages = list(_pages(ledger))  # only references; the messages, which take time, are written one by one
    if len(pages) > PARTS_MAX:
        problem = f"a ledger of {len(pages)} parts cannot be handed over to the next leader, which takes {PARTS_MAX}"
        raise HubUnavailable("protocol", f"{problem}; spread keys over more shards")
    for number, page in enumerate(pages):
        items = [_item_of(kind, name, what) for kind, name, what in page]
        header = _PART.pack(term, number, len(pages), SCHEMA_VERSION)
        try:
            yield sealed(MessageKind.LEDGER, header + cast("bytes", msgpack.packb(items)))
        except (OverflowError, ValueError):
            problem = f"part {number} of a ledger has a number of more than 64 bits, and cannot be handed over"
            raise HubUnavailable("protocol", f"{problem}; {ONE_VERSION}") from None


def _pages(ledger: LedgerShard) -> Iterator[list[tuple[str, Any, Any]]]:
    page: list[tuple[str, Any, Any]] = [("shard", None, ledger)]
    rows = 0
    for kind, all_of_them in (("node", ledger.nodes), ("account", ledger.accounts), ("cell", ledger.cells)):
        what: Any
        for name, what in all_of_them.items():
            page.append((kind, name, what))
            rows += 1 + len(what.entries if kind == "cell" else what.limits if kind == "account" else ())
            if rows >= ROWS_AT_ONCE:
                yield page
                page, rows = [], 0
    yield page


def _item_of(kind: str, name: Any, what: Any) -> Item:
    if kind == "shard":
        return [kind, *(getattr(what, field) for field in _META)]
    if kind == "node":
        return [kind, name, *astuple(what)]
    if kind == "account":
        return [kind, name, what.seen_us, [[limit, *totals] for limit, totals in what.limits.items()]]
    entries = [[node, *(getattr(entry, field) for field in _ENTRY)] for node, entry in what.entries.items()]
    return [kind, *name, [getattr(what, field) for field in _CELL], entries]


class LedgerReader:
    """Puts a ledger together from its parts, which one member, `sender`, sends one after the other."""

    def __init__(self, sender: str) -> None:
        self._sender = sender
        self._ledger = LedgerShard()
        self._term = 0
        self._parts = 0
        self._next = 0

    def read(self, payload: bytes) -> tuple[LeaderClaim, LedgerShard] | None:
        """Reads the next part; after the last part, returns the sender's claim and the whole ledger, else None.

        Raises MalformedMessage; after that the reader cannot be used any more.
        """
        content = body(payload, MessageKind.LEDGER)
        try:
            term, number, parts, schema = _PART.unpack_from(content)
            items = msgpack.unpackb(content[_PART.size :], strict_map_key=True)
        except (ValueError, TypeError, RecursionError, struct.error, msgpack.UnpackException):
            raise MalformedMessage("ledger", f"a part of {len(content)} bytes of a ledger cannot be decoded") from None
        if schema != SCHEMA_VERSION:
            raise MalformedMessage(
                "schema", f"the ledger has the schema {schema}, not {SCHEMA_VERSION}; update all members"
            )
        if number == 0:
            self._term, self._parts = term, parts
        if (term, parts, number) != (self._term, self._parts, self._next) or not 1 <= term <= TERM_MAX:
            raise MalformedMessage("ledger", f"part {number} of term {term} came where part {self._next} is expected")
        if parts > PARTS_MAX or type(items) is not list or (number == 0 and not items):
            raise MalformedMessage("ledger", f"a ledger of {parts} parts has more than {PARTS_MAX}, or an empty part")
        for place, item in enumerate(items):
            if type(item) is not list or not item or (item[0] == "shard") != (place == number == 0):
                raise MalformedMessage(
                    "ledger",
                    f"item {place} of part {number} of a ledger is empty or misplaced: item 0 of part 0 is the shard",
                )
            self._take(item)
        self._next += 1
        return (LeaderClaim(term, self._sender, 0), self._ledger) if self._next == parts else None

    def _take(self, item: Item) -> None:
        kind, *rest = item
        if kind == "shard":
            self._take_shard(rest)
        elif kind == "node":
            self._take_node(rest)
        elif kind == "account":
            self._take_account(rest)
        elif kind == "cell":
            self._take_cell(rest)
        else:
            raise MalformedMessage(
                "ledger", f"an item has the unknown kind {shown(kind)}; run one release on all members"
            )

    def _take_shard(self, rest: Item) -> None:
        _check(len(rest) == len(_META))
        meta = dict(zip(_META, rest, strict=True))
        _check(is_text(meta["generation"]) and type(meta["lost"]) is bool)
        _check(all(is_sum(meta[name]) for name in ("born_us", "swept_us", "calm_us", "stirred_us")))
        for name, value in meta.items():
            setattr(self._ledger, name, value)

    def _take_node(self, rest: Item) -> None:
        _check(len(rest) == 10)
        name, seen_us, sequence, interval_us, lease_us, gone, *sealed = rest
        _check(is_text(name, 2) and name not in self._ledger.nodes and type(gone) is bool)
        _check(is_sum(seen_us) and is_whole(sequence) and is_whole(interval_us) and is_whole(lease_us, 1))
        _check(all(map(is_sum, sealed)))
        self._ledger.nodes[name] = NodeRecord(seen_us, sequence, interval_us, lease_us, gone, *sealed)

    def _take_account(self, rest: Item) -> None:
        _check(len(rest) == 3)
        name, seen_us, limits = rest
        _check(is_text(name) and name not in self._ledger.accounts and is_sum(seen_us))
        account = Account(seen_us)
        for limit in _list(limits):
            _check(len(_list(limit)) == 3)
            limit_name, charged, refunded = limit
            _check(is_text(limit_name) and limit_name not in account.limits and is_sum(charged) and is_sum(refunded))
            account.limits[limit_name] = Totals(charged, refunded)
        self._ledger.accounts[name] = account

    def _take_cell(self, rest: Item) -> None:
        _check(len(rest) == 6)
        limit, counted, window_us, key, fields, entries = rest
        _check(is_text(limit) and is_text(counted, 1, VARIANT_BYTES_MAX) and is_whole(window_us, 1))
        _check(is_text(key, 0, KEY_BYTES_MAX) and len(_list(fields)) == len(_CELL))
        _check((limit, counted, window_us, key) not in self._ledger.cells)
        values = dict(zip(_CELL, fields, strict=True))
        for name, value in values.items():
            if name == "first":
                _check(is_text(value))
            elif name == "restless":
                _check(type(value) is bool)
            elif name in ("fill_milli", "carry_milli"):
                _check(type(value) in (int, float) and isfinite(value) and abs(value) <= SUM_MAX)
            else:
                _check(is_sum(value, signed=name in _SIGNED))
        cell = LedgerCell(**values)
        for entry in _list(entries):
            node, read = _entry(entry)
            _check(node not in cell.entries)
            cell.entries[node] = read
        if cell.first not in cell.entries:
            cell.first, cell.reserved = "", 0
        cell.clear()
        for one in cell.entries.values():
            cell.count(one)
        cell.scanned_us = 0
        self._ledger.cells[limit, counted, window_us, key] = cell


def _entry(item: Item) -> tuple[str, Entry]:
    _check(len(_list(item)) == 1 + len(_ENTRY))
    node = item[0]
    numbers: dict[str, Any] = dict(zip(_ENTRY, item[1:], strict=True))
    _check(is_text(node) and (node == DEPARTED or len(node) > 1))
    is_sealed = numbers.pop("sealed")
    _check(type(is_sealed) is bool)
    _check(all(is_sum(number, signed=name in _SIGNED) for name, number in numbers.items()))
    return node, Entry(**numbers, sealed=is_sealed)


def _list(value: Any) -> Item:
    _check(type(value) is list)
    return cast("Item", value)


def is_sum(value: object, *, signed: bool = False) -> bool:
    """Returns whether `value` is a whole number that a moment or a sum may have; a negative one only if `signed`."""
    return type(value) is int and (-SUM_MAX if signed else 0) <= value <= SUM_MAX


def _check(fits: bool) -> None:  # noqa: FBT001  # it reads like an assertion
    if not fits:
        raise MalformedMessage(
            "ledger", "the ledger in it has a value of a wrong type, out of range, missing or given twice"
        )
