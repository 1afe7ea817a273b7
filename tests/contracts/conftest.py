"""The books that contracts are kept in."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from reconverge.clock import ManualClock
from reconverge.contracts.store.book import Book
from reconverge.contracts.store.memory_book import MemoryBook
from reconverge.hub.registry import HubSettings
from reconverge_sync.memory import MemoryHub
from reconverge_sync.redis.hub import RedisHub
from tests.support.kept_contracts import book_at
from tests.support.published import NOON
from tests.support.servers import RedisServer


@pytest.fixture
def clock() -> ManualClock:
    """At noon."""
    return ManualClock(start=NOON)


@pytest.fixture(params=["in memory", "at a hub in memory", "at a Redis"])
async def book(request: pytest.FixtureRequest, clock: ManualClock) -> AsyncIterator[Book]:
    """An empty book."""
    if request.param == "in memory":
        yield MemoryBook(clock=clock)
        return
    hub: MemoryHub | RedisHub = MemoryHub(clock=clock)
    if request.param == "at a Redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        hub = RedisHub(server.url, HubSettings("shop", 5.0))
    yield book_at(hub, clock)
    await hub.close()
