"""Hints from node to node that a key is used up: what to tell, and what to make of what is heard. Does no I/O.

A hint says that somebody lacks something of a key and nothing is free. Whoever holds a cell of that key, and does not
know as much, has it exchanged ahead of time: so a line that nobody needs comes back now, and a node that thought the
key calm learns that it is not. A hint changes nothing else. It neither admits nor refuses, and whether it is true
nobody has to know: a thousand forged ones cost no more than exchanges ahead of time, at the pace of all such.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from struct import Struct
from typing import TYPE_CHECKING, Final

from reconverge.kernel import hasten
from reconverge.report import Batch

if TYPE_CHECKING:
    from reconverge.kernel import Cell, Kernel, Table

MAGIC: Final = b"rch1"
"""Begins every hint, and says in which format it is."""
SENDER_BYTES: Final = 8
BYTES_MAX: Final = 8192
"""No hint is longer; whatever is, nobody looks at."""
KEYS_MAX: Final = 64
"""So many keys are in one hint."""
KEY_BYTES_MAX: Final = 1024
"""Longer keys are not told of."""
NAME_BYTES_MAX: Final = 255
PENDING_MAX: Final = 256
"""So many keys wait to be told of; those beyond are not told of."""
REMEMBERED_MAX: Final = 4096
"""Of so many keys it is remembered that they were told or heard of; those beyond, the oldest, may be told of again."""
HEARD_MAX: Final = 64
"""So many hints are looked at in the time that lies between two exchanges at least."""
NEWS_SHARE: Final = 0.1
"""In one window a key is told of again when the node has charged so much of its capacity since it was last told of, by
whomever. So a fleet of any size that keeps its limits tells of a key little more than ten times in a window."""
_ENTRY: Final = Struct("<BH")
"""The bytes of a limit's name and of a key, which come next."""

Subject = tuple[str, str]
"""The name of a quota, and a key."""


@dataclass(frozen=True, slots=True)
class HintsStats:
    """What one node has told others, and heard of them."""

    connected: bool = False
    told: int = 0
    """Keys that others were told to be used up."""
    heard: int = 0
    """Hints of others that could be read."""
    heeded: int = 0
    """Keys that were exchanged ahead of time because of that."""
    rejected: dict[str, int] = field(default_factory=dict[str, int])
    """Hints that were not looked at, or could not be read, by reason."""
    failures: dict[str, int] = field(default_factory=dict[str, int])
    """How often there was no connection, by class of failure."""


class Misfit(Exception):
    """Raised for a hint that cannot be read. `reason` says in a word what is wrong with it."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Hints:
    """One node's part. `sender` is what its hints are signed with, so that it knows them when they come back."""

    def __init__(self, kernel: Kernel, *, sender: bytes) -> None:
        assert len(sender) == SENDER_BYTES
        self._kernel = kernel
        self.sender = sender
        self._pending: OrderedDict[Subject, None] = OrderedDict()
        self._known: OrderedDict[Subject, tuple[int, int]] = OrderedDict()
        """In which window each was told of last, by whomever, and what this node had charged by then."""
        self._next_ns = 0
        """When to tell next, at the earliest."""
        self._heard_since_ns = 0
        self._heard_lately = 0
        self.told = self.heard = self.heeded = 0
        self.rejected: Counter[str] = Counter()

    # ------------------------------------------------------------ telling

    def answered(self, batch: Batch, now_ns: int) -> None:
        """The answer to that batch was taken in: see which of its keys are used up and were not yet told of."""
        cells: Sequence[Cell] = getattr(batch.cells, "cells", ())
        for cell in cells:
            if cell.free < 1 and cell.need_milli > 0 and _lacks(cell, now_ns):
                self._note(cell)

    def _note(self, cell: Cell) -> None:
        subject = cell.table.name, cell.key
        epoch, charged = self._known.get(subject, (None, 0))
        is_news = epoch != cell.epoch or cell.charged - charged >= NEWS_SHARE * cell.capacity
        if is_news and len(self._pending) < PENDING_MAX:
            self._remember(subject, cell)
            self._pending[subject] = None

    def _remember(self, subject: Subject, cell: Cell) -> None:
        self._known[subject] = cell.epoch, cell.charged
        self._known.move_to_end(subject)
        if len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)

    @property
    def due_ns(self) -> int | None:
        """When there is something to tell; None if there is nothing."""
        return self._next_ns if self._pending else None

    def take(self, now_ns: int) -> bytes | None:
        """What to tell all others now, if anything."""
        if not self._pending or now_ns < self._next_ns:
            return None
        self._next_ns = now_ns + self._kernel.soonest_ns
        parts = [MAGIC, self.sender]
        size = len(MAGIC) + SENDER_BYTES
        for subject in list(islice(self._pending, KEYS_MAX)):
            entry = _written(subject)
            if size + len(entry) > BYTES_MAX:
                break
            del self._pending[subject]
            if entry:
                parts.append(entry)
                size += len(entry)
        self.told += len(parts) - 2
        return b"".join(parts) if len(parts) > 2 else None

    # ------------------------------------------------------------ hearing

    def hear(self, payload: bytes, now_ns: int) -> None:
        """Others have told something: have exchanged what is worth it. Raises nothing, whatever it is."""
        if now_ns - self._heard_since_ns >= self._kernel.soonest_ns:
            self._heard_since_ns, self._heard_lately = now_ns, 0
        self._heard_lately += 1
        if self._heard_lately > HEARD_MAX:
            self.rejected["flood"] += 1
            return
        try:
            sender, subjects = read_hint(payload)
        except Misfit as misfit:
            self.rejected[misfit.reason] += 1
            return
        if sender == self.sender:
            return
        self.heard += 1
        for name, key in subjects:
            self._heed(name, key, now_ns)

    def _heed(self, name: str, key: str, now_ns: int) -> None:
        """Have a key exchanged that this node keeps a cell of. Others leave no trace, or anybody could fill memory."""
        table = self._kernel.tables.get(name)
        cell = None if table is None else table.cells.get(key)
        if table is None or cell is None:
            return
        table.lock.run(self._hasten, table, cell, now_ns)

    def _hasten(self, table: Table, cell: Cell, now_ns: int) -> None:
        subject = table.name, cell.key
        table.measure(cell)
        self._remember(subject, cell)  # all others have heard it as well
        self._pending.pop(subject, None)
        self.heeded += hasten(cell, now_ns)


def read_hint(payload: bytes) -> tuple[bytes, list[Subject]]:
    """Who tells, and of which keys. Raises Misfit."""
    if len(payload) > BYTES_MAX:
        raise Misfit("size")
    if not payload.startswith(MAGIC) or len(payload) < len(MAGIC) + SENDER_BYTES:
        raise Misfit("format")
    first = len(MAGIC) + SENDER_BYTES
    subjects = list(_subjects(payload, first))
    if not 1 <= len(subjects) <= KEYS_MAX:
        raise Misfit("keys")
    return payload[len(MAGIC) : first], subjects


def _subjects(payload: bytes, offset: int) -> Iterator[Subject]:
    while offset < len(payload):
        key_at = offset + _ENTRY.size
        if key_at > len(payload):
            raise Misfit("cut")
        name_bytes, key_bytes = _ENTRY.unpack_from(payload, offset)
        key_at += name_bytes
        offset = key_at + key_bytes
        if not name_bytes or key_bytes > KEY_BYTES_MAX or offset > len(payload):
            raise Misfit("cut")
        try:
            yield str(payload[key_at - name_bytes : key_at], "utf-8"), str(payload[key_at:offset], "utf-8")
        except UnicodeDecodeError:
            raise Misfit("text") from None


def _written(subject: Subject) -> bytes:
    """Limit and key as they travel; empty if they cannot."""
    name, key = (part.encode("utf-8", "replace") for part in subject)
    if len(name) > NAME_BYTES_MAX or len(key) > KEY_BYTES_MAX:
        return b""
    return _ENTRY.pack(len(name), len(key)) + name + key


def _lacks(cell: Cell, now_ns: int) -> bool:
    """Whether this node is about to refuse what is asked next."""
    table = cell.table
    return table.lock.run(table.headroom, cell, now_ns) < table.unit
