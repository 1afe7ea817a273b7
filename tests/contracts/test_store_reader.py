"""Goal: every node obeys what is kept at the hub within one interval, and nothing that is forged, replayed or cut.

Method: readers on a clock of the test's at a hub in memory; then running agents at a real Redis, in threads and as
processes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconverge import Agent, InvalidSetting
from reconverge.clock import ManualClock
from reconverge.contracts.contracts import Contracts
from reconverge.contracts.document import checked
from reconverge.contracts.following import follow_hub
from reconverge.contracts.store.index import (
    INDEX,
    LIFETIME_MAX_S,
    MAGIC,
    seal_index,
)
from reconverge.contracts.store.kept_file import FILE_BYTES_MAX, HEADER_BYTES_MAX, KeptFile
from reconverge.contracts.store.reader import ContractsReader
from reconverge.errors import HubUnavailable
from reconverge.hub.registry import HubSettings
from reconverge.published.envelope import Rejection, Secrets, Verifier, seal_table
from reconverge_sync.memory import MemoryHub
from reconverge_sync.redis.hub import RedisHub
from tests.support.fixtures.agents import MakeAgent
from tests.support.kept_contracts import INTERVAL_S, PageReader, book_at, many, shop
from tests.support.published import NOON, SECRET
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

Damage = Callable[[bytes], bytes]


@pytest.fixture
def hub(clock: ManualClock) -> MemoryHub:
    """Without any contracts."""
    return MemoryHub(clock=clock)


@pytest.fixture
def node(hub: MemoryHub, clock: ManualClock) -> PageReader:
    """That has looked once."""
    node = PageReader(hub, clock)
    node.interval()
    return node


def published(hub: MemoryHub, said: dict[str, Any], clock: ManualClock, **how: Any) -> int:
    """Publishes a document to the fleet; returns its version."""
    return asyncio.run(book_at(hub, clock, **how).replace(said, author="root"))


def put_index(hub: MemoryHub, payload: bytes) -> None:
    """Puts a payload in place of the index, as any node with the hub's password could."""
    hub._index = payload, 1 << 62


def index_at(hub: MemoryHub) -> bytes:
    assert hub._index is not None
    return hub._index[0]


def test_a_node_obeys_within_an_interval(hub: MemoryHub, clock: ManualClock, node: PageReader) -> None:
    """Publication, change and roll-back reach it, and it is told of each once."""
    book = book_at(hub, clock)
    assert [] == node.versions
    changes: list[Coroutine[Any, Any, int]] = [
        book.replace(shop(ada="free"), author="root"),
        book.set_customer("bob", "pro", author="root"),
        book.rollback(1, author="root"),
    ]
    seen = []
    for change in changes:
        asyncio.run(change)
        node.interval()
        node.interval()
        seen.append(dict(node.customers))

    assert [1, 2, 3] == node.versions
    assert [{"ada": "free"}, {"ada": "free", "bob": "pro"}, {"ada": "free"}] == seen
    assert (3, 3, {}, {}) == (
        node.reader.stats().version,
        node.reader.stats().accepted,
        node.reader.stats().rejected,
        node.reader.stats().failures,
    )


def test_only_pages_that_have_changed_are_fetched(hub: MemoryHub, clock: ManualClock, node: PageReader) -> None:
    """Of many customers: all pages once, then one for a change of one, one for a change of the plans, none for none."""
    said = many(3000)
    published(hub, said, clock)
    node.interval()
    all_pages = node.reader.stats().pages_fetched
    said["customers"]["customer-000007"] = "plan-1"
    published(hub, said, clock)
    node.interval()
    one_more = node.reader.stats().pages_fetched
    known = node.reader.document
    said["plans"]["plan-19"] = {"limits": {"calls": "9/minute"}}
    published(hub, said, clock)
    node.interval()
    node.interval()

    assert 2 < all_pages < 10
    assert [1, 1] == [one_more - all_pages, node.reader.stats().pages_fetched - one_more]
    assert checked(said) == node.reader.document
    assert known != node.reader.document


def test_several_versions_in_one_interval_are_one_change(hub: MemoryHub, clock: ManualClock, node: PageReader) -> None:
    """The last one counts."""
    for number in range(3):
        published(hub, shop(**{f"c{number}": "free"}), clock)
    node.interval()

    assert [3] == node.versions
    assert {"c2": "free"} == node.customers


@pytest.mark.parametrize("field", ["plans", "customers", "history", "version", "issued", "expires", "namespace"])
def test_a_signed_index_that_makes_no_sense_is_malformed(field: str) -> None:
    """Each field may hold something impossible; and each must be there, with no other beside them."""
    good: dict[str, Any] = {
        "namespace": "shop",
        "version": 1,
        "issued": 1,
        "expires": 2,
        "plans": "0" * 64,
        "customers": ["0" * 64],
        "history": ["0" * 64],
    }
    assert not isinstance(_opened(good), Rejection)
    wrong: list[Any] = [None, True, -1, 0, 1.5, "", "x" * 64, [], ["0" * 63], ["0" * 64] * 3, ["0" * 64] * 512, {}]
    for value in wrong:
        if (field, value) in (("history", ["0" * 64] * 3), ("namespace", "x" * 64)):
            continue
        verdict = _opened({**good, field: value})
        assert isinstance(verdict, Rejection), value
        assert "malformed" == verdict.reason
    tables: list[Any] = [{name: each for name, each in good.items() if name != field}, {**good, "more": 1}, [], None]
    for table in tables:
        assert isinstance(_opened(table), Rejection)


def _opened(said: Any) -> object:
    return INDEX.opened(seal_table(said, Secrets(SECRET), magic=MAGIC), Secrets(SECRET), "shop")


@pytest.mark.parametrize(
    ("reason", "damage"),
    [("page-missing", None), ("page-damaged", lambda page: page[:-1]), ("page-damaged", lambda page: page * 100_000)],
)
def test_a_page_that_is_not_right_keeps_all_of_its_version_back(
    hub: MemoryHub,
    clock: ManualClock,
    node: PageReader,
    reason: str,
    damage: Damage | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Missing, cut, too long: counted once, said once; and when the page is there again, the version is obeyed."""
    published(hub, shop(ada="free"), clock)
    node.interval()
    published(hub, shop(ada="pro"), clock)
    index = INDEX.opened(index_at(hub), Secrets(SECRET), "shop")
    assert not isinstance(index, Rejection)
    (digest,) = index.outline.customers
    whole = hub._pages[digest]
    hub._pages[digest] = (b"", 0) if damage is None else (damage(whole[0]), whole[1])
    for _ in range(3):
        node.interval()
    assert {"ada": "free"} == node.customers
    assert {reason: 1} == node.reader.stats().rejected
    assert 1 == sum(record.levelno == logging.WARNING for record in caplog.records)
    hub._pages[digest] = whole
    node.interval()

    assert {"ada": "pro"} == node.customers
    assert [1, 2] == node.versions


def test_pages_that_make_no_document_are_invalid(hub: MemoryHub, clock: ManualClock, node: PageReader) -> None:
    """Each is what its digest says, and the customer's plan is not among the plans."""
    published(hub, shop(ada="pro"), clock)
    index = INDEX.opened(index_at(hub), Secrets(SECRET), "shop")
    assert not isinstance(index, Rejection)
    said = {**shop(), "plans": {"free": {"limits": {"calls": "1/day"}}}}
    published(other := MemoryHub(clock=clock), said, clock)
    plans = INDEX.opened(index_at(other), Secrets(SECRET), "shop")
    assert not isinstance(plans, Rejection)
    hub._pages.update(other._pages)
    outline = index.outline._replace(plans=plans.outline.plans)
    put_index(hub, seal_index(replace(index, outline=outline), Secrets(SECRET)))
    for _ in range(3):
        node.interval()

    assert {"invalid": 1} == node.reader.stats().rejected
    assert [] == node.versions


def test_contracts_stay_in_force_while_the_hub_is_away(hub: MemoryHub, clock: ManualClock, node: PageReader) -> None:
    """Also when their index expires: it does so for nodes that know none. The pause between looks grows."""
    published(hub, shop(ada="free"), clock)
    node.interval()
    node.hub = Away()
    for _ in range(30):
        node.interval(INTERVAL_S)
    looks = node.reader.stats().failures["gone"]
    clock.advance(LIFETIME_MAX_S)
    node.interval()

    assert {"ada": "free"} == node.customers
    assert looks < 10
    assert node.reader.stats().expires_in < 0
    assert [1] == node.versions


class Away(MemoryHub):
    """Answers nothing."""

    async def read_index(self, *, bytes_max: int) -> bytes | None:
        """Raises."""
        raise HubUnavailable("gone", "away")


def test_a_node_that_starts_believes_no_version_below_the_minimum(hub: MemoryHub, clock: ManualClock) -> None:
    """An old index is signed and valid; that it is old is known to the operator alone."""
    published(hub, shop(ada="pro"), clock)
    old = index_at(hub)
    published(hub, shop(ada="free"), clock)
    put_index(hub, old)
    believing, careful = PageReader(hub, clock), PageReader(hub, clock, minimum=2)
    for node in (believing, careful):
        node.interval()

    assert {"ada": "pro"} == believing.customers
    assert {} == careful.customers
    assert {"old": 1} == careful.reader.stats().rejected
    with pytest.raises(InvalidSetting, match="minimum=-1: is not a version; give a whole number from 0 to"):
        Verifier(INDEX, "shop", Secrets(SECRET), minimum=-1)


# What nodes keep.


def test_a_hub_that_has_lost_its_data_is_told_again(hub: MemoryHub, clock: ManualClock, node: PageReader) -> None:
    """Within ten seconds, by one node: pages first, then the index; a node that starts then knows all of it."""
    published(hub, many(3000), clock)
    other = PageReader(hub, clock)
    for each in (node, other):
        each.interval()
    hub.lose_data()
    for _ in range(110):
        node.interval()
        other.interval(0.0)
    late = PageReader(hub, clock)
    late.interval()

    assert 1 == node.reader.stats().restored + other.reader.stats().restored
    assert node.reader.document == late.reader.document
    assert [1] == late.versions
    assert 2 == published(hub, shop(ada="free"), clock)


def test_a_file_has_the_contracts_for_a_start_without_the_hub(
    hub: MemoryHub, clock: ManualClock, tmp_path: Path
) -> None:
    """The last ones, before the first look; the hub's newer ones take their place."""
    file = KeptFile(tmp_path / "new" / "contracts")
    node = PageReader(hub, clock, file=file)
    published(hub, shop(ada="free"), clock)
    node.interval()
    published(hub, many(3000), clock)
    node.interval()
    alone = PageReader(Away(), clock, file=KeptFile(file.path))
    assert [2] == alone.versions
    assert node.reader.document == alone.reader.document
    published(hub, shop(ada="pro"), clock)
    alone.hub = hub
    alone.interval()

    assert [2, 3] == alone.versions
    assert {"ada": "pro"} == alone.customers
    assert 0o600 == file.path.stat().st_mode & 0o777
    assert [file.path] == list(file.path.parent.iterdir())


@pytest.mark.parametrize(
    ("damage", "rejected", "failures"),
    [
        (lambda content: content[:-1], {}, {"file": 1}),
        (lambda content: b"", {}, {"file": 1}),
        (lambda content: b"reconverge-contracts-kept-1 -5 9\n", {}, {"file": 1}),
        (lambda content: content + b" " * FILE_BYTES_MAX, {}, {"file": 1}),
        (lambda content: content.replace(b'"ada"', b'"bob"'), {"page-missing": 1}, {}),
        (lambda content: content.replace(b'"version":1', b'"version":2'), {"forged": 1}, {}),
        (lambda content: b"reconverge-contracts-kept-1 0\n", {"malformed": 1}, {}),
    ],
)
def test_a_file_is_believed_for_its_signature_alone(
    hub: MemoryHub,
    clock: ManualClock,
    tmp_path: Path,
    damage: Damage,
    rejected: dict[str, int],
    failures: dict[str, int],
) -> None:
    """Cut, emptied, of nonsense, of another customer, of another version: the node starts without, and says so."""
    path = tmp_path / "contracts"
    node = PageReader(hub, clock, file=KeptFile(path))
    published(hub, shop(ada="free"), clock)
    node.interval()
    path.write_bytes(damage(path.read_bytes()))
    alone = PageReader(hub, clock, file=KeptFile(path))

    assert [] == alone.versions
    assert (rejected, failures) == (alone.reader.stats().rejected, alone.reader.stats().failures)
    alone.interval()
    assert {"ada": "free"} == alone.customers
    assert HEADER_BYTES_MAX < FILE_BYTES_MAX


def test_a_file_that_is_old_or_expired_is_not_obeyed(hub: MemoryHub, clock: ManualClock, tmp_path: Path) -> None:
    """By the minimum, and by the clock."""
    file = KeptFile(tmp_path / "contracts")
    published(hub, shop(ada="free"), clock)
    PageReader(hub, clock, file=file).interval()
    careful = PageReader(hub, clock, file=file, minimum=2)
    clock.advance(LIFETIME_MAX_S)
    late = PageReader(hub, clock, file=file)

    assert [{"old": 1}, {"expired": 1}] == [each.reader.stats().rejected for each in (careful, late)]


def test_a_file_whose_contracts_cannot_be_applied_keeps_no_node_from_starting(
    hub: MemoryHub, clock: ManualClock, tmp_path: Path
) -> None:
    """The node begins without contracts, and counts that."""

    def fail(version: int, document: object) -> None:
        raise ZeroDivisionError

    file = KeptFile(tmp_path / "contracts")
    published(hub, shop(ada="free"), clock)
    PageReader(hub, clock, file=file).interval()
    node = PageReader(hub, clock, file=file, apply=fail)

    assert (0, {"unfit": 1}) == (node.reader.version, node.reader.stats().rejected)


def test_a_file_that_cannot_be_written_stops_nothing(hub: MemoryHub, clock: ManualClock, tmp_path: Path) -> None:
    """A directory stands in its place; the contracts are in force, and it is counted."""
    published(hub, shop(ada="free"), clock)
    node = PageReader(hub, clock, file=KeptFile(tmp_path))
    node.interval()

    assert {"ada": "free"} == node.customers
    assert {"file": 2} == node.reader.stats().failures
    assert [] == list(tmp_path.parent.glob(f".{tmp_path.name}-*"))


# Running agents.


def follow(agent: Agent, told: list[int]) -> ContractsReader:
    return agent.follow(
        lambda clock, interval_ns: ContractsReader(
            Verifier(INDEX, "shop", Secrets(SECRET)),
            clock,
            interval_ns=interval_ns,
            apply=lambda version, _: told.append(version),
        )
    )


def test_agents_at_a_redis_follow_within_one_interval(redis_server: RedisServer) -> None:
    """Driven by the test: each change is obeyed by the next round that every agent makes, and no other is needed."""
    clock = ManualClock(start=NOON)
    told: list[list[int]] = [[] for _ in range(3)]
    agents = [
        Agent(redis_server.url, namespace="shop", clock=clock, sigterm=False, sync_interval=0.1) for _ in range(3)
    ]
    for agent, versions in zip(agents, told, strict=True):
        agent._lifecycle.start = lambda: None  # type: ignore[method-assign]  # the test drives the exchanges
        follow(agent, versions)

    async def live() -> list[list[list[int]]]:
        book = book_at(hub := RedisHub(redis_server.url, HubSettings("shop", 5.0)), clock)
        seen = []
        for number in range(4):
            if number == 0:
                await book.replace(many(2000), author="root")
            else:
                await book.set_customer("ada", "plan-1", author="root")
            clock.advance(0.1)
            for agent in agents:
                await agent._lifecycle.exchanges.carry_out()
            seen.append([list(versions) for versions in told])
        for agent in agents:
            await agent._lifecycle.exchanges.close()
        await hub.close()
        return seen

    assert [[list(range(1, number + 2))] * 3 for number in range(4)] == asyncio.run(live())


def test_an_agent_without_a_hub_has_nothing_to_follow(make_agent: MakeAgent) -> None:
    """Which is an error, and not without effect."""
    with pytest.raises(InvalidSetting, match="holds the data of this process"):
        follow(make_agent("memory://"), [])


def test_a_document_that_is_put_in_force_by_hand_beside_the_hub_is_logged(
    redis_server: RedisServer, make_agent: MakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    """Once: the next version at the hub replaces it. Neither what the hub has, nor a document before that, is."""
    caplog.set_level(logging.WARNING, "reconverge")
    agent = make_agent(redis_server.url)
    contracts = Contracts(agent, shop())
    contracts.replace(shop(ada="pro"))
    follow_hub(contracts, secret=SECRET)

    async def publish() -> None:
        hub = RedisHub(redis_server.url, HubSettings(agent.namespace, 5.0))
        await book_at(hub, namespace=agent.namespace).replace(shop(ada="pro"), author="root")
        await hub.close()

    asyncio.run(publish())
    agent.start()
    eventually(lambda: contracts.version == 1, "the contracts of the hub")
    before = caplog.text.count("on this node alone")
    for _ in range(2):
        contracts.replace(shop(ada="free"))

    assert [0, 1] == [before, caplog.text.count("replace() puts a document in force on this node alone")]
    assert "at the hub (version 1 so far), whose next version replaces that document; publish it" in caplog.text


async def test_an_agent_that_stops_waits_for_no_pages(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """A page that does not come is let go of, and the agent says its last words."""

    class Slow(RedisHub):
        asked = False

        async def get_page(self, digest: str, *, bytes_max: int) -> bytes | None:
            self.asked = True
            await asyncio.sleep(3600)
            return None

    hub = RedisHub(redis_server.url, HubSettings("shop", 5.0))
    await book_at(hub).replace(shop(ada="free"), author="root")
    await hub.close()
    slow = Slow(redis_server.url, HubSettings("shop", 5.0))
    agent = make_agent(slow, namespace="shop", sync_interval=0.02, exchange_timeout=60.0, lease_ttl=300.0)
    follow(agent, [])
    limiter = agent.limit("calls", "100/second")
    limiter.allow("ada")
    eventually(lambda: slow.asked, "a page that is asked for")
    driver = agent._lifecycle.exchanges
    before = driver.answered
    limiter.allow("bob")
    eventually(lambda: driver.answered > before, "an exchange beside the page")
    agent.stop()

    assert not agent._lifecycle.alive
