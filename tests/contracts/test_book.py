"""Goal: a book of contracts changes them whole or not at all, loses no change, and can go back to what was.

Method: each book, in memory, at a hub in memory and at a real Redis; then what is particular to hubs.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis

from reconverge.clock import ManualClock
from reconverge.contracts.document import checked
from reconverge.contracts.model import InvalidContracts
from reconverge.contracts.store.book import Book, VersionConflict
from reconverge.contracts.store.changing import UnknownVersion
from reconverge.contracts.store.hub_book import RETIRED_S, HubBook
from reconverge.contracts.store.index import HISTORY_MAX, LIFETIME_MAX_S
from reconverge.errors import HubUnavailable, InvalidSetting
from reconverge.hub.registry import HubSettings
from reconverge.published.envelope import Secrets, UnverifiedDocument
from reconverge_sync.memory import MemoryHub
from reconverge_sync.redis.hub import RedisHub
from tests.support.kept_contracts import book_at, many, shop
from tests.support.published import NOON, OTHER, sealed
from tests.support.published import orders as settings
from tests.support.servers import RedisServer, free_port


async def close(*books: Any) -> None:
    """Let go of the connections of their hubs."""
    for book in books:
        await book._store.close()


def plans_of(document: Any) -> dict[str, str]:
    """Which plan each customer is on."""
    return {identity: each.plan for identity, each in document.customers.items()}


async def test_an_empty_book_is_at_version_nothing(book: Book) -> None:
    """No plan, no history; and what needs a plan is refused."""
    version, document = await book.read()
    assert (0, {}) == (version, document.plans)
    assert [] == list(await book.history())
    with pytest.raises(InvalidContracts):
        await book.set_customer("ada", "free", author="root")
    with pytest.raises(UnknownVersion, match=r"^version 1 of the contracts is not kept; kept versions: none$"):
        await book.rollback(1, author="root")

    assert isinstance(book, Book)


async def test_the_version_rises_by_one_with_each_change(book: Book) -> None:
    """And each is read as it was made."""
    assert 1 == await book.replace(shop(ada="free"), author="root")
    assert 2 == await book.set_customer("bob", {"plan": "pro", "note": "since May"}, author="root", expected=1)
    assert 3 == await book.set_customer("ada", "pro", author="root")
    assert (3, {"ada": "pro", "bob": "pro"}) == ((await book.read())[0], plans_of((await book.read())[1]))
    assert 4 == await book.set_customer("ada", None, author="root")
    assert {"bob": "pro"} == plans_of((await book.read())[1])
    assert 5 == await book.rollback(3, author="root")
    assert {"ada": "pro", "bob": "pro"} == plans_of((await book.read())[1])


async def test_a_change_for_another_version_fails(book: Book) -> None:
    """It tells both versions, and has changed nothing."""
    await book.replace(shop(ada="free"), author="root", expected=0)
    await book.set_customer("ada", "pro", author="root")
    for expected in (0, 1, 3):
        with pytest.raises(
            VersionConflict, match=f"at version 2, and the change was made for version {expected}"
        ) as raised:
            await book.set_customer("ada", "free", author="root", expected=expected)
        assert (expected, 2) == (raised.value.expected, raised.value.found)
        with pytest.raises(VersionConflict):
            await book.replace(shop(), author="root", expected=expected)

    assert (2, {"ada": "pro"}) == ((await book.read())[0], plans_of((await book.read())[1]))


async def test_what_makes_no_sense_changes_nothing(book: Book) -> None:
    """Of a customer, of a document, of an author."""
    await book.replace(shop(ada="free"), author="root")
    for wrong in ("gold", {"plan": "free", "limits": {"calls": "many"}}, 7):
        with pytest.raises(InvalidContracts):
            await book.set_customer("ada", wrong, author="root")
    with pytest.raises(InvalidContracts):
        await book.replace({"plans": {}}, author="root")
    with pytest.raises(InvalidContracts):
        await book.set_customer("", "free", author="root")
    for author in ("", "a\nb", "a" * 201):
        with pytest.raises(InvalidContracts, match="is no name of an author"):
            await book.set_customer("ada", "pro", author=author)

    assert (1, {"ada": "free"}) == ((await book.read())[0], plans_of((await book.read())[1]))


async def test_the_history_tells_what_was_changed_by_whom_and_when(book: Book, clock: ManualClock) -> None:
    """The newest first; of one customer only what is about it."""
    await book.replace(shop(ada="free"), author="root")
    clock.advance(60)
    await book.set_customer("ada", "pro", author="grace")
    clock.advance(60)
    await book.set_customer("bob", "free", author="linus")
    await book.set_customer("ada", None, author="grace")
    told = await book.history()
    assert [4, 3, 2, 1] == [change.version for change in told]
    assert ["grace", "linus", "grace", "root"] == [change.author for change in told]
    assert [NOON + 120, NOON + 120, NOON + 60, NOON] == [change.when for change in told]
    of_ada = await book.history(identity="ada")

    assert [({"plan": "pro"}, None), ({"plan": "free"}, {"plan": "pro"})] == [
        (change.before, change.after) for change in of_ada
    ]
    assert (None, None) == (told[3].identity, told[3].before)
    assert {"ada": {"plan": "free"}} == told[3].after["customers"]
    assert [4, 3] == [change.version for change in await book.history(most=2)]


async def test_former_limits_hold_beside_a_change_and_a_rollback(book: Book, clock: ManualClock) -> None:
    """Going back is a change as well: what was used since still counts."""
    await book.replace(shop(ada="free"), author="root")
    await book.set_customer("ada", "bucket", author="root")
    formers = (await book.read())[1].customers["ada"].former
    assert [("sliding-window", NOON + 2.0)] == [(each.limit.algorithm, each.until) for each in formers]
    clock.advance(10)
    await book.rollback(1, author="root")
    formers = (await book.read())[1].customers["ada"].former

    assert [("token-bucket", NOON + 70.0)] == [(each.limit.algorithm, each.until) for each in formers]


async def test_the_last_hundred_versions_are_kept(book: Book) -> None:
    """The hundredth but last can be had again; the one before that cannot, and the error names those that can."""
    await book.replace(shop(ada="free"), author="root")
    for number in range(HISTORY_MAX):
        await book.set_customer("ada", {"plan": "free", "note": str(number)}, author="root")
    assert HISTORY_MAX == len(await book.history(most=1000))
    with pytest.raises(UnknownVersion, match=r"^version 1 of the contracts is not kept; .*: from 2 to 101$"):
        await book.rollback(1, author="root")

    assert 102 == await book.rollback(2, author="root")
    assert "0" == (await book.read())[1].customers["ada"].note


async def test_of_writers_at_once_no_change_is_lost(redis_server: RedisServer, clock: ManualClock) -> None:
    """Each is made again from what there is; of those for one version, one is made and the others are told."""
    books = [book_at(RedisHub(redis_server.url, HubSettings("shop", 5.0)), clock) for _ in range(4)]
    await books[0].replace(shop(), author="root")
    await asyncio.gather(*(book.set_customer(f"c{turn}", "pro", author="root") for turn, book in enumerate(books)))
    version, document = await books[0].read()
    assert (5, {f"c{turn}": "pro" for turn in range(4)}) == (version, plans_of(document))
    answers = await asyncio.gather(
        *(book.set_customer("ada", "pro", author="root", expected=5) for book in books), return_exceptions=True
    )
    assert [6] == [answer for answer in answers if isinstance(answer, int)]
    assert 3 == sum(isinstance(answer, VersionConflict) for answer in answers)
    await close(*books)


async def test_ten_thousand_customers_on_twenty_plans_at_a_redis(redis_server: RedisServer, clock: ManualClock) -> None:
    """All of them are read as they were said; a change of one puts two pages, and another reader fetches one."""
    with redis.Redis(unix_socket_path=str(redis_server.socket)) as admin:
        writer, reader = (book_at(RedisHub(redis_server.url, HubSettings("shop", 5.0)), clock) for _ in range(2))
        await writer.replace(many(10_000), author="root")
        assert (1, checked(many(10_000))) == await reader.read()
        pages: Any = admin.keys("shop:*:page:*")
        fetched = reader._pages.fetched
        await writer.set_customer("customer-000007", "plan-1", author="root")
        version, document = await reader.read()
        after: Any = admin.keys("shop:*:page:*")
        longest = max(admin.hstrlen(key, "payload") for key in after)
        assert (2, "plan-1") == (version, document.customers["customer-000007"].plan)
        assert 1 == reader._pages.fetched - fetched
        assert 2 == len(after) - len(pages)
        assert longest <= 65_536
        index_bytes: Any = admin.hstrlen("shop:{0}:contracts", "payload")
        assert index_bytes < 4096
        await close(writer, reader)


async def test_pages_of_no_version_go_by_themselves(clock: ManualClock) -> None:
    """An hour after the version has left the history; all others stay for their year, however old."""
    hub = MemoryHub(clock=clock)

    book = book_at(hub, clock)
    await book.replace(shop(ada="free"), author="root")
    first = set(hub._pages)
    for number in range(HISTORY_MAX):
        await book.set_customer("ada", {"plan": "free", "note": str(number)}, author="root")
    gone = {digest for digest, (_, until_ns) in hub._pages.items() if until_ns == clock.wall_ns() + RETIRED_S * 1e9}
    assert 2 == len(gone)  # that of ada, and what told of the change; the plans are of all versions
    assert gone < first
    # What was retired comes back with a change that says the same again.
    await book.set_customer("ada", "free", author="root")
    clock.advance(RETIRED_S)

    assert {"ada": "free"} == plans_of((await book_at(hub, clock).read())[1])


async def test_a_page_that_goes_while_a_change_is_made_is_put_again(clock: ManualClock) -> None:
    """Another writer retires it between the first look and the swap."""

    class Retiring(MemoryHub):
        async def swap_index(self, payload: bytes, *, over: bytes | None, bytes_max: int, keep_s: float) -> bool:
            self._pages.clear()
            return await super().swap_index(payload, over=over, bytes_max=bytes_max, keep_s=keep_s)

    hub = Retiring(clock=clock)
    await book_at(hub, clock).replace(shop(ada="free"), author="root")

    assert {"ada": "free"} == plans_of((await book_at(hub, clock).read())[1])


def test_a_change_that_fails_in_the_middle_is_not_made(clock: ManualClock) -> None:
    """After each of its steps at the hub: what is read is the version before, or the whole of the new one."""

    class Failing(MemoryHub):
        left = 1_000_000

        async def put_page(self, digest: str, payload: bytes, *, keep_s: float) -> None:
            self.step()
            await super().put_page(digest, payload, keep_s=keep_s)

        async def swap_index(self, payload: bytes, *, over: bytes | None, bytes_max: int, keep_s: float) -> bool:
            self.step()
            return await super().swap_index(payload, over=over, bytes_max=bytes_max, keep_s=keep_s)

        async def keep_pages(self, digests: Any, *, keep_s: float) -> list[str]:
            self.step()
            return await super().keep_pages(digests, keep_s=keep_s)

        def step(self) -> None:
            self.left -= 1
            if self.left < 0:
                raise HubUnavailable("gone", "in the middle")

    async def plan_after(steps: int) -> str:
        hub = Failing(clock=clock)
        await book_at(hub, clock).replace(shop(ada="free"), author="root")
        hub.left = steps
        try:
            await book_at(hub, clock).set_customer("ada", "pro", author="root")
        except HubUnavailable:
            hub.left = 1_000_000
        return plans_of((await book_at(hub, clock).read())[1])["ada"]

    assert ["free"] * 4 + ["pro"] * 2 == [asyncio.run(plan_after(steps)) for steps in range(6)]


async def test_contracts_of_another_secret_are_not_replaced(clock: ManualClock) -> None:
    """Nor are settings, or anything else, in their place; with `force` they are."""
    hub = MemoryHub(clock=clock)

    stranger = book_at(hub, clock, secrets=Secrets(OTHER))
    await stranger.replace(shop(ada="free"), author="root")
    book = book_at(hub, clock)
    for attempt in (
        book.read(),
        book.replace(shop(), author="root"),
        book.history(),
        book.rollback(1, author="root"),
    ):
        with pytest.raises(UnverifiedDocument, match="is not signed with any of the secrets") as raised:
            await attempt
        assert "forged" == raised.value.reason
    assert {"ada": "free"} == plans_of((await stranger.read())[1])
    hub._index = sealed(settings()), 1 << 62
    with pytest.raises(UnverifiedDocument, match="does not begin with the header of contracts"):
        await book.read()
    assert 1 == await book_at(hub, clock, force=True).replace(shop(bob="pro"), author="root")
    assert {"bob": "pro"} == plans_of((await book.read())[1])
    with pytest.raises(UnverifiedDocument, match="is for the namespace 'shop'"):
        await book_at(hub, clock, namespace="other").read()


async def test_contracts_whose_pages_are_lost_are_told_of(clock: ManualClock) -> None:
    """Missing or changed; they can be replaced by force, under a version that nodes obey."""
    hub = MemoryHub(clock=clock)

    await book_at(hub, clock).replace(shop(ada="free"), author="root")
    for damage in (lambda page: (b"{}", page[1]), lambda page: (page[0], 0)):
        hub._pages = {digest: damage(page) for digest, page in hub._pages.items()}
        with pytest.raises(UnverifiedDocument) as raised:
            await book_at(hub, clock).set_customer("ada", "pro", author="root")
        assert "lost" == raised.value.reason
    assert 2 == await book_at(hub, clock, force=True).replace(shop(bob="pro"), author="root")
    version, document = await book_at(hub, clock).read()

    assert (2, {"bob": "pro"}) == (version, plans_of(document))
    assert [2] == [change.version for change in await book_at(hub, clock).history()]


async def test_a_minimum_is_kept_by_the_first_version(clock: ManualClock) -> None:
    """After a hub was lost with all nodes; from then on versions rise by one."""
    book = book_at(MemoryHub(clock=clock), clock, minimum=58)
    assert [58, 59] == [await book.replace(shop(), author="root") for _ in range(2)]


async def test_contracts_are_kept_for_a_year(clock: ManualClock) -> None:
    """Which every change begins anew, for pages that it does not change, and for what tells of former changes."""
    hub = MemoryHub(clock=clock)

    await book_at(hub, clock).replace(shop(ada="free"), author="root")
    clock.advance(LIFETIME_MAX_S - 1)
    await book_at(hub, clock).set_customer("bob", "pro", author="root")
    clock.advance(LIFETIME_MAX_S - 1)
    assert {"ada": "free", "bob": "pro"} == plans_of((await book_at(hub, clock).read())[1])
    assert [2, 1] == [change.version for change in await book_at(hub, clock).history()]
    with pytest.raises(UnknownVersion, match=r"^version 1 of the contracts is not kept; .*: from 2 to 2$"):
        await book_at(hub, clock).rollback(1, author="root")
    clock.advance(1)

    assert 0 == (await book_at(hub, clock).read())[0]


def test_a_hub_that_keeps_no_contracts_is_refused() -> None:
    """Before anything is asked of it."""
    with pytest.raises(InvalidSetting, match="is a hub that keeps no contracts; name a Redis or a broker of MQTT"):
        book_at(object())


async def test_a_hub_that_is_away_is_unavailable(clock: ManualClock) -> None:
    """And nothing else is raised."""
    book: HubBook = book_at(RedisHub(f"redis://127.0.0.1:{free_port()}/0", HubSettings("shop", 5.0)), clock)
    for attempt in (
        book.read(),
        book.replace(shop(), author="root"),
        book.history(),
        book.rollback(1, author="root"),
    ):
        with pytest.raises(HubUnavailable):
            await attempt
