"""Stores the contracts of a fleet at its hub: reads them, changes them, and keeps a history of the changes."""

# Theory of operation.
#
# The problem. Two operators change contracts at once, a writer crashes in the middle, and the hub cannot be trusted, as
# any node may write to it. No change may be lost or half made, and former versions must stay available.
#
# How it works. A writer stores the new pages (parts of the document) first, under their digests, where they change
# nothing. Then it replaces the index (the signed list of pages) in one step, if the index is still the one that the
# change was made from; that is the moment of the change. A writer that was too late makes its change again from the new
# version, unless it was made for one version (`expected`).
#
# Each change leaves a page with its entry in the history and the pages of that version. The index names the last
# HISTORY_MAX of them. To roll back is to sign the pages of a former version again, as a new version.
#
# A page that belongs only to versions before the last HISTORY_MAX is kept for RETIRED_S more, and not deleted at once:
# another writer may be about to name it again, since equal pages have the same name. After it has replaced the index, a
# writer extends the time of all its pages once more, and stores those again that were deleted meanwhile.

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import takewhile
from typing import Any, Final

from reconverge.arguments import checked_class
from reconverge.clock import SECOND_NS, Clock, SystemClock
from reconverge.contracts.model import Document, InvalidContracts, check_identity
from reconverge.contracts.store.book import Change, VersionConflict
from reconverge.contracts.store.changing import (
    NO_CONTRACTS,
    ChangingBook,
    Make,
    UnknownVersion,
    change_note,
    check_author,
)
from reconverge.contracts.store.erasing import ERASED, Rewritten, change_without, without_customer
from reconverge.contracts.store.fetching import MissingPage, Pages, fetched_page, put_pages
from reconverge.contracts.store.index import (
    HISTORY_MAX,
    INDEX,
    INDEX_BYTES_MAX,
    LIFETIME_MAX_S,
    Index,
    seal_index,
)
from reconverge.contracts.store.pages import (
    PAGE_BYTES_MAX,
    DamagedPage,
    Outline,
    digest_of,
    divided,
    page_number,
    payload_of,
    table_in,
)
from reconverge.errors import InvalidSetting
from reconverge.hub.port import ContractStore
from reconverge.hub.registry import redacted
from reconverge.published.envelope import Rejection, Secrets, UnverifiedDocument

TRIES_MAX: Final = 8
"""The number of attempts to make a change; each fails if another change comes first."""
RETIRED_S: Final = 3600.0
"""The seconds for which a page that belongs to no kept version any more stays at the hub."""
AT_ONCE_S: Final = 0.001
"""The seconds for which a page with the name of an erased customer stays at the hub: the shortest time possible."""
LOST: Final = "lost"
"""The reason word of an error for contracts with a valid index, but with lost or damaged pages at the hub."""


class HubBook(ChangingBook):
    """A book (a store of contracts with a history) at a hub.

    Args:
        store: the hub, opened for the namespace.
        namespace: the namespace of the contracts.
        secrets: the secrets for signatures: the first signs, and any of them verifies.
        clock: the clock of changes; for tests.
        minimum: the lowest number that a version may have, as in the nodes' RECONVERGE_CONTRACTS_MIN_VERSION.
        force: whether to replace contracts that cannot be read. Then `replace` begins without former limits.

    Raises InvalidSetting if `store` keeps no contracts or has another namespace, or `secrets` are no `Secrets`.
    """

    def __init__(
        self,
        store: ContractStore,
        namespace: str,
        secrets: Secrets,
        *,
        clock: Clock | None = None,
        minimum: int = 0,
        force: bool = False,
    ) -> None:
        if isinstance(store, str):
            problem = "is a URL; write HubBook(open_hub(url, HubSettings(namespace)), namespace, secrets)"
            raise InvalidSetting("store", redacted(store), problem)
        checked_class("secrets", secrets, Secrets, "write HubBook(hub, namespace, Secrets(text))")
        own = getattr(store, "namespace", namespace)
        if own != namespace:
            problem = f"is not the namespace of the hub, {own!r}, whose nodes would reject the contracts; write this"
            raise InvalidSetting("namespace", namespace, problem)
        if not isinstance(store, ContractStore):
            raise InvalidSetting(
                "hub", type(store).__name__, "is a hub that keeps no contracts; name a Redis or a broker of MQTT"
            )
        self._store = store
        self._namespace = namespace
        self._secrets = secrets
        self._clock = clock or SystemClock()
        self._minimum = minimum
        self._force = force
        self._pages = Pages()
        self._entries: dict[str, dict[str, Any]] = {}
        """The entries of the history, as far as they were read, by digest."""

    async def read(self) -> tuple[int, Document]:
        """Returns the version and the contracts, as `Book.read` does.

        Raises UnverifiedDocument if they are not valid.
        """
        _, index = await self._index()
        if index is None:
            return 0, NO_CONTRACTS
        return index.version, await self._document(index.outline)

    async def _former(self, version: int) -> Document:
        _, index = await self._index()
        entries = [] if index is None else await self._history(index)
        outline = next((_outline_in(each) for each in entries if each["version"] == version), None)
        if outline is None:
            raise UnknownVersion(version, [each["version"] for each in entries])
        try:
            return await Pages().document(self._store, outline)
        except MissingPage:
            raise UnknownVersion(version, [each["version"] for each in entries if each["version"] != version]) from None

    async def _recorded_changes(self) -> Sequence[Change]:
        _, index = await self._index()
        return [] if index is None else [_change_in(each) for each in await self._history(index)]

    async def forget(self, identity: str, *, author: str) -> int | None:
        """Erases a customer as `Book.forget` does.

        Pages with the customer's name are deleted at once, except two kinds, which stay for up to RETIRED_S: pages of
        versions that the history does not list any more, and pages of a writer whose change came too late.
        """
        check_author(author)
        check_identity(identity, "identity")
        found = 0
        for _ in range(TRIES_MAX):
            payload, index = await self._index()
            if index is None:
                return None
            found = index.version
            rewritten = await self._rewritten(index, identity)
            before = await self._before(index)
            after = without_customer(before, identity)
            if after is before and not rewritten.changed:
                return None
            now_s = self._clock.wall_ns() / SECOND_NS
            change = Change(max(found, self._minimum - 1) + 1, author, now_s, ERASED, None, None)
            if await self._swap(payload, index, after, change, rewritten=rewritten):
                self._pages, self._entries = Pages(), {}
                return change.version
        _, index = await self._index()
        raise VersionConflict(found, 0 if index is None else index.version)

    async def _rewritten(self, index: Index, identity: str) -> Rewritten:
        done = Rewritten([], {}, set(index.history) | set(index.outline.digests))
        for said in await self._history(index):
            outline = _outline_in(said)
            done.former.update(outline.digests)
            number = page_number(identity, len(outline.customers))
            page = await self._customers_page(outline.customers[number])
            if page is not None and identity in page:
                payload = payload_of({name: each for name, each in page.items() if name != identity})
                done.pages[digest_of(payload)] = payload
                customers = [*outline.customers]
                customers[number] = digest_of(payload)
                outline = outline._replace(customers=tuple(customers))
            entry = _entry_page(change_without(_change_in(said), identity), outline)
            done.pages[digest_of(entry)] = entry
            done.history.append(digest_of(entry))
        return done

    async def _customers_page(self, digest: str) -> dict[str, Any] | None:
        """Returns the content of one page of customers; None if the hub does not have it any more, or it is damaged."""
        try:
            page = table_in(await fetched_page(self._store, digest), digest)
        except (MissingPage, DamagedPage):
            return None
        return page if isinstance(page, dict) else None

    async def _change(self, make: Make, author: str, expected: int | None = None, identity: str | None = None) -> int:
        check_author(author)
        found = 0
        for _ in range(TRIES_MAX):
            payload, index = await self._index()
            found = 0 if index is None else index.version
            if expected is not None and found != expected:
                raise VersionConflict(expected, found)
            before = await self._before(index)
            now_s = self._clock.wall_ns() / SECOND_NS
            after = await asyncio.to_thread(make, before, now_s)
            note = await asyncio.to_thread(change_note, before, after, identity)
            version = max(found, self._minimum - 1) + 1
            change = Change(version, author, now_s, note.identity, note.before, note.after)
            if await self._swap(payload, index, after, change):
                return version
        _, index = await self._index()
        raise VersionConflict(found, 0 if index is None else index.version)

    async def _swap(
        self,
        payload: bytes | None,
        before: Index | None,
        after: Document,
        change: Change,
        *,
        rewritten: Rewritten | None = None,
    ) -> bool:
        """Stores the pages of a change, then its index, the list of pages. Returns whether the index was stored.

        `payload` and `before` are the index that was read at the hub, in bytes and parsed. If the hub has another one
        by now, because another change came first, the new index is not stored. With a `rewritten` history, pages that
        belong only to the former history are deleted at once.
        """
        parts = divided(after, pages=None if before is None else len(before.outline.customers))
        entry = _entry_page(change, parts.outline)
        pages = {**parts.pages, digest_of(entry): entry}
        former: Sequence[str] = () if before is None else before.history
        if rewritten is not None:
            former = rewritten.history
            pages |= rewritten.pages
        lacking = set(await put_pages(self._store, pages, (*pages, *former[: HISTORY_MAX - 1]), keep_s=LIFETIME_MAX_S))
        kept = takewhile(lambda each: each not in lacking, former[: HISTORY_MAX - 1])
        issued = int(change.when)
        index = Index(
            namespace=self._namespace,
            version=change.version,
            issued=issued,
            expires=issued + LIFETIME_MAX_S,
            outline=parts.outline,
            history=(digest_of(entry), *kept),
        )
        swapped = await self._store.swap_index(
            seal_index(index, self._secrets), over=payload, bytes_max=INDEX_BYTES_MAX, keep_s=LIFETIME_MAX_S
        )
        if swapped:
            await put_pages(self._store, pages, pages, keep_s=LIFETIME_MAX_S)
            if rewritten is None:
                await self._retire(former, index)
            else:
                kept_pages = {*pages, *index.history, *parts.outline.digests}
                for each in await self._history(index):
                    kept_pages.update(_outline_in(each).digests)
                await self._store.keep_pages(sorted(rewritten.former - kept_pages), keep_s=AT_ONCE_S)
        return swapped

    async def _retire(self, former: Sequence[str], index: Index) -> None:
        """Lets the hub delete, after RETIRED_S, the pages of versions that the history does not list any more.

        `former` has the digests of the history before the change, `index` those of the history after it. Pages that are
        also part of a listed version stay.
        """
        dropped = [each for each in former if each not in index.history]
        if not dropped:
            return
        kept = set(index.history)
        for each in await self._history(index):
            kept.update(_outline_in(each).digests)
        gone = set(dropped)
        for digest in dropped:
            entry = await self._entry(digest)
            gone.update(() if entry is None else _outline_in(entry).digests)
        await self._store.keep_pages(sorted(gone - kept), keep_s=RETIRED_S)

    async def _index(self) -> tuple[bytes | None, Index | None]:
        """Reads the index at the hub. Returns its bytes, and the index if it is valid; None and None if there is none.

        Raises UnverifiedDocument for an invalid index, unless the book was made with `force`.
        """
        payload = await self._store.read_index(bytes_max=INDEX_BYTES_MAX)
        if payload is None:
            return None, None
        index = INDEX.opened(payload, self._secrets, self._namespace)
        if not isinstance(index, Rejection):
            return payload, index
        if not self._force:
            raise UnverifiedDocument(index.reason, f"the index {index.problem}")
        return payload, None

    async def _before(self, index: Index | None) -> Document:
        if index is None:
            return NO_CONTRACTS
        try:
            return await self._document(index.outline)
        except UnverifiedDocument:
            if not self._force:
                raise
            return NO_CONTRACTS

    async def _document(self, outline: Outline) -> Document:
        try:
            return await self._pages.document(self._store, outline)
        except MissingPage as error:
            raise UnverifiedDocument(
                LOST, f"the hub has lost a page of contracts, {str(error)[:16]}...; publish the contracts again"
            ) from None
        except (DamagedPage, InvalidContracts) as error:
            raise UnverifiedDocument(LOST, f"a page of the contracts {error}") from None

    async def _history(self, index: Index) -> list[dict[str, Any]]:
        """Returns the history entries of the last changes, the newest first, up to the first one whose page is lost."""
        entries = []
        for digest in index.history:
            entry = await self._entry(digest)
            if entry is None:
                break
            entries.append(entry)
        self._entries = {digest: page for digest, page in self._entries.items() if digest in index.history}
        return entries

    async def _entry(self, digest: str) -> dict[str, Any] | None:
        """Returns the history entry of one change; None if its page at the hub is lost or damaged."""
        if digest not in self._entries:
            try:
                self._entries[digest] = table_in(await fetched_page(self._store, digest), digest)
            except (MissingPage, DamagedPage):
                return None
        return self._entries[digest]


def _entry_page(change: Change, outline: Outline) -> bytes:
    """Returns a change as a page of the history; if the page would be too long, it omits the text before and after."""
    said = {
        "version": change.version,
        "author": change.author,
        "when": change.when,
        "identity": change.identity,
        "before": change.before,
        "after": change.after,
        "plans": outline.plans,
        "customers": list(outline.customers),
    }
    payload = payload_of(said)
    if len(payload) > PAGE_BYTES_MAX:
        payload = payload_of({**said, "before": None, "after": None})
    return payload


def _outline_in(entry: dict[str, Any]) -> Outline:
    return Outline(entry["plans"], tuple(entry["customers"]))


def _change_in(entry: dict[str, Any]) -> Change:
    return Change(entry["version"], entry["author"], entry["when"], entry["identity"], entry["before"], entry["after"])
