"""Stores contracts in the memory of this process, for programs without a hub and for tests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from reconverge.clock import SECOND_NS, Clock, SystemClock
from reconverge.contracts.model import Document, check_identity
from reconverge.contracts.store.book import Change, VersionConflict
from reconverge.contracts.store.changing import (
    NO_CONTRACTS,
    ChangingBook,
    Make,
    UnknownVersion,
    change_note,
    check_author,
)
from reconverge.contracts.store.erasing import ERASED, change_without, without_customer
from reconverge.contracts.store.index import HISTORY_MAX
from reconverge.runtime.locks import new_lock


class MemoryBook(ChangingBook):
    """A book (a store of contracts with a history) in memory; its contracts end with the process.

    `changed` is called with the version and the contracts after each change, by the thread that makes the change.
    """

    def __init__(
        self,
        document: Document = NO_CONTRACTS,
        *,
        clock: Clock | None = None,
        changed: Callable[[int, Document], None] = lambda _version, _document: None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._changed = changed
        self._changing = new_lock()
        """The lock that a thread holds while it makes a change, which may take seconds."""
        self._lock = new_lock(whole=True)
        """The lock that is held while a change comes into force, and while contracts are read."""
        self._version = 1 if document.plans else 0
        self._document = document
        self._changes: deque[Change] = deque(maxlen=HISTORY_MAX)
        self._documents: dict[int, Document] = {self._version: document} if document.plans else {}
        """The contracts of the last versions, by version: HISTORY_MAX at most."""

    async def read(self) -> tuple[int, Document]:
        with self._lock:
            return self._version, self._document

    async def _former(self, version: int) -> Document:
        with self._lock:
            kept = dict(self._documents)
        if version not in kept:
            raise UnknownVersion(version, kept)
        return kept[version]

    async def _recorded_changes(self) -> Sequence[Change]:
        with self._lock:
            return list(self._changes)

    async def _change(self, make: Make, author: str, expected: int | None = None, identity: str | None = None) -> int:
        check_author(author)
        return await asyncio.to_thread(self._make, make, author, expected, identity)

    async def forget(self, identity: str, *, author: str) -> int | None:
        check_author(author)
        check_identity(identity, "identity")
        return await asyncio.to_thread(self._forget, identity, author)

    def _forget(self, identity: str, author: str) -> int | None:
        with self._changing:
            documents = {each: without_customer(document, identity) for each, document in self._documents.items()}
            changes = [change_without(each, identity) for each in self._changes]
            unchanged = all(one is other for one, other in zip(changes, self._changes, strict=True))
            if unchanged and all(documents[each] is document for each, document in self._documents.items()):
                return None
            document = without_customer(self._document, identity)
            with self._lock:
                self._documents = documents
                self._changes = deque(changes, maxlen=HISTORY_MAX)
                version = self._become(document, Change(0, author, self._now_s(), ERASED, None, None))
        self._changed(version, document)
        return version

    def _become(self, document: Document, change: Change) -> int:
        """Stores a document and its change under the next version, and returns that. The caller holds `_lock`."""
        self._version += 1
        self._document = self._documents[self._version] = document
        self._documents.pop(self._version - HISTORY_MAX, None)
        self._changes.appendleft(replace(change, version=self._version))
        return self._version

    def _now_s(self) -> float:
        return self._clock.wall_ns() / SECOND_NS

    def _make(self, make: Make, author: str, expected: int | None, identity: str | None) -> int:
        with self._changing:
            if expected is not None and expected != self._version:
                raise VersionConflict(expected, self._version)
            before = self._document
            now_s = self._now_s()
            after = make(before, now_s)
            note = change_note(before, after, identity)
            with self._lock:
                version = self._become(after, Change(0, author, now_s, identity, note.before, note.after))
        self._changed(version, after)
        return version
