"""Goal: a customer that is erased stands in no version of the contracts, and the versions are else what they were.

Method: each book, in memory, at a hub in memory and at a real Redis, whose pages are searched.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reconverge.clock import ManualClock
from reconverge.contracts.model import InvalidContracts
from reconverge.contracts.store.book import Book
from reconverge.contracts.store.erasing import ERASED
from reconverge.contracts.store.index import HISTORY_MAX
from reconverge.contracts.store.memory_book import MemoryBook
from reconverge_sync.memory import MemoryHub
from tests.support.kept_contracts import many, shop
from tests.support.searched import stored
from tests.support.servers import RedisServer


def everything(book: Any, server: RedisServer) -> str:
    """All that is kept, as text."""
    if isinstance(book, MemoryBook):
        return repr((book._documents, book._changes, book._document))
    if isinstance(book._store, MemoryHub):
        now_ns = book._store._clock.wall_ns()
        pages = [page for page, until_ns in book._store._pages.values() if until_ns > now_ns]
        return repr((book._store._index, pages))
    return repr(stored(server.url))


async def test_no_version_knows_a_customer_that_is_erased(
    book: Book, clock: ManualClock, redis_server: RedisServer
) -> None:
    """Nor does the history, or a page; others are in every version what they were, and one can go back to it."""
    await book.replace(shop(acme="free", globex="free"), author="ops")
    await book.set_customer("acme", {"plan": "bucket", "note": "acme of 2019"}, author="ops")
    await book.set_customer("globex", "pro", author="ops")
    await book.replace(shop(acme="pro", globex="bucket"), author="ops")
    assert "acme" in everything(book, redis_server)

    version = await book.forget("acme", author="the privacy office")

    clock.advance(0.01)
    await asyncio.sleep(0.01)  # the server deletes by its own clock
    assert "acme" not in everything(book, redis_server)
    assert 5 == version
    assert (5, ["globex"]) == (await plans(book))
    changes = await book.history()
    assert [5, 4, 3, 2, 1] == [each.version for each in changes]
    assert [ERASED, None, "globex", ERASED, None] == [each.identity for each in changes]
    assert {"the privacy office", "ops"} == {each.author for each in changes}
    await book.rollback(3, author="ops")
    _, document = await book.read()

    assert ["pro"] == [each.plan for each in document.customers.values()]


async def plans(book: Book) -> tuple[int, list[str]]:
    """The version, and the customers that there are."""
    version, document = await book.read()
    return version, list(document.customers)


async def test_a_customer_of_former_versions_alone_is_erased_from_those(
    book: Book, clock: ManualClock, redis_server: RedisServer
) -> None:
    """Ending a contract leaves it in the history; erasing takes it out of there."""
    await book.replace(shop(acme="free", globex="free"), author="ops")
    await book.set_customer("acme", None, author="ops")
    assert "acme" in everything(book, redis_server)

    assert 3 == await book.forget("acme", author="ops")

    clock.advance(0.01)
    await asyncio.sleep(0.01)

    assert "acme" not in everything(book, redis_server)


async def test_what_no_version_knows_changes_nothing(book: Book) -> None:
    """No version is made of it, in an empty book neither."""
    assert await book.forget("acme", author="ops") is None
    await book.replace(shop(globex="free"), author="ops")

    assert await book.forget("acme", author="ops") is None
    assert 1 == (await book.read())[0]


@pytest.mark.parametrize("identity", ["", "a\0b", "x" * 2000, 5])
async def test_what_is_no_identity_is_refused(book: Book, identity: Any) -> None:
    """With an error that shows it."""
    with pytest.raises(InvalidContracts):
        await book.forget(identity, author="ops")


@pytest.mark.slow
async def test_a_customer_is_erased_from_a_full_history_of_many_pages(book: Book, redis_server: RedisServer) -> None:
    """Of a hundred versions and a thousand customers, in which each page of the erased one was another."""
    redis_server.command("FLUSHALL")

    await book.replace(many(1000), author="ops")
    for number in range(HISTORY_MAX - 1):
        await book.set_customer("customer-000007", f"plan-{number % 20}", author="ops")

    assert HISTORY_MAX + 1 == await book.forget("customer-000007", author="ops")

    await asyncio.sleep(0.01)
    assert b"customer-000007" not in stored(redis_server.url)
    _, document = await book.read()
    assert 999 == len(document.customers)
    await book.rollback(HISTORY_MAX // 2, author="ops")

    assert 999 == len((await book.read())[1].customers)
