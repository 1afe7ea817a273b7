"""Goal: a node holds what the contracts say of the customers that it meets, and decides on the safe side until it does.

Method: nodes on a clock of the test's at a hub in memory that damages or loses pages; then running agents at a Redis.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from reconverge import Agent, InvalidSetting, Limit
from reconverge.clock import SECOND_NS, ManualClock
from reconverge.contracts import contracts as contracts_module
from reconverge.contracts.contracts import Contracts
from reconverge.contracts.document import checked
from reconverge.contracts.explaining import NOT_MET
from reconverge.contracts.following import follow_hub
from reconverge.contracts.model import Former
from reconverge.contracts.on_demand import customers as customers_module
from reconverge.contracts.on_demand import page_fetching
from reconverge.contracts.on_demand.customers import ABSENT_MAX, PENDING_MAX, PENDING_S, WAITING_MAX, OnDemandCustomers
from reconverge.contracts.on_demand.packed_page import packed, this_moment
from reconverge.contracts.on_demand.page_fetching import FULL_PAGES, IDLE_S, TABLE_BYTES_MIN, PagesOnDemand
from reconverge.contracts.on_demand.page_table import PageTable
from reconverge.contracts.store import reader
from reconverge.contracts.store.index import INDEX
from reconverge.contracts.store.kept_file import KeptFile
from reconverge.contracts.store.pages import PAGE_BYTES_MAX, page_number
from reconverge.errors import HubUnavailable, MissingExtra
from reconverge.published.envelope import Rejection, Secrets
from reconverge_sync.memory import MemoryHub
from tests.contracts import operator
from tests.support.fixtures.agents import MakeAgent
from tests.support.kept_contracts import PLANS, DecidingNode, book_at, many, shop
from tests.support.published import NOON, SECRET
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

NOON_S = NOON / SECOND_NS
CUSTOMERS = 5000
"""Four pages."""


class PageHub(MemoryHub):
    """A hub in memory that counts pages, and of which some are damaged, lost or do not come."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self.asked: Counter[str] = Counter()
        self.damaged: set[str] = set()
        self.lost: set[str] = set()
        self.old: dict[str, str] = {}
        """The digest of a page, by that of the one in place of which it is given."""
        self.away = False

    async def get_page(self, digest: str, *, bytes_max: int) -> bytes | None:
        self.asked[digest] += 1
        if self.away:
            raise HubUnavailable("connection", "no pages today")
        given = self.old.get(digest, digest)
        page = None if digest in self.lost else await super().get_page(given, bytes_max=bytes_max)
        return page if page is None or digest not in self.damaged else page.replace(b"plan-1", b"plan-2")


@pytest.fixture
def hub(clock: ManualClock) -> PageHub:
    """With 5,000 customers, of which every tenth has a limit of its own."""
    hub = PageHub(clock)
    publish(hub, clock, many(CUSTOMERS))
    hub.asked.clear()
    return hub


@pytest.fixture
def node(hub: PageHub, clock: ManualClock) -> DecidingNode:
    """That has read the index and the plans."""
    node = DecidingNode(hub, clock)
    node.interval()
    return node


def publish(hub: MemoryHub, clock: ManualClock, said: dict[str, Any]) -> None:
    asyncio.run(book_at(hub, clock).replace(said, author="root"))


def set_plan(hub: MemoryHub, clock: ManualClock, customer: str, said: Any) -> None:
    asyncio.run(book_at(hub, clock).set_customer(customer, said, author="root"))


def digests(hub: MemoryHub) -> tuple[str, ...]:
    """Those of the pages of customers in force at the hub."""
    assert hub._index is not None
    index = INDEX.opened(hub._index[0], Secrets(SECRET), "shop")
    assert not isinstance(index, Rejection)
    return index.outline.customers


def of_page(number: int, pages: int, most: int = 10, begin: int = 0) -> list[str]:
    """Customers on a page."""
    names = (f"customer-{each:06d}" for each in range(begin, CUSTOMERS))
    return [each for each in names if page_number(each, pages) == number][:most]


def test_a_page_is_fetched_when_a_customer_of_it_is_met(hub: PageHub, node: DecidingNode) -> None:
    """Before that none is; afterwards all customers of the page are known, each as the document says."""
    pages = len(digests(hub))
    assert (4, set(), 1) == (pages, node.held, node.contracts.version)
    first, second = of_page(2, pages, 2)
    pending = node.contracts.hit(first)
    node.go_on()
    known = [node.contracts.hit(each) for each in (first, second)]
    document = checked(many(CUSTOMERS))
    mine = {each: node.contracts.document.customers[each] for each in of_page(2, pages, 1000)}

    assert (True, "plan-0") == (pending.pending, pending.plan)
    assert [False, False] == [each.pending for each in known]
    assert [document.customers[each].plan for each in (first, second)] == [each.plan for each in known]
    assert {2} == node.held
    assert 1 == node.wakes
    assert {each: document.customers[each] for each in mine} == mine


def test_until_its_page_is_there_a_customer_is_decided_as_an_unknown_one(hub: PageHub, node: DecidingNode) -> None:
    """By the plan of unknown customers, 100 a minute; what was used moves with it to its own plan."""
    customer = next(each for each in of_page(1, 4, 100) if each.endswith("7"))  # on plan-7 or plan-17: 107 or 117
    quota = 100 + int(customer[-6:]) % 20
    before = node.admitted(customer, 200)
    node.go_on()
    after = node.admitted(customer, 200)

    assert (100, quota - 100) == (before, after)


def test_a_customer_may_be_refused_until_its_page_is_there(hub: PageHub, clock: ManualClock) -> None:
    """With `refused`: it may come again after a second, other than one that is unknown for good."""
    node = DecidingNode(hub, clock, meanwhile="refused")
    node.interval()
    customer = of_page(1, 4, 1)[0]
    refused = node.contracts.hit(customer)
    node.go_on()

    assert (False, "refused", PENDING_S, True) == (
        refused.allowed,
        refused.plan,
        refused.retry_after,
        refused.pending,
    )
    assert node.contracts.hit(customer).allowed


def test_unknown_customers_that_are_refused_may_come_again_while_their_page_is_fetched(
    hub: PageHub, clock: ManualClock
) -> None:
    """A second while it is not known, and infinity when it is."""
    publish(hub, clock, {**many(CUSTOMERS), "unknown": "refused"})
    node = DecidingNode(hub, clock)
    node.interval()
    waits = [node.contracts.hit("stranger").retry_after]
    node.go_on()
    waits.append(node.contracts.hit("stranger").retry_after)

    assert [PENDING_S, float("inf")] == waits


def test_a_plan_that_counts_otherwise_is_not_forgiven_when_the_page_comes(clock: ManualClock) -> None:
    """The charge to the plan of unknown customers holds beside a bucket, until it counts no more."""
    hub = PageHub(clock)
    publish(hub, clock, shop(ada="bucket"))
    node = DecidingNode(hub, clock)
    node.interval()
    used = node.admitted("ada", 60)
    node.go_on()
    at_once = node.admitted("ada", 60)
    names = [*node.contracts.test("ada").decisions]
    clock.advance(2.0)
    later = node.admitted("ada", 200)

    assert (50, 0) == (used, at_once)
    assert 2 == len(names)
    assert 100 == later


def test_a_customer_is_decided_by_its_page_from_the_moment_it_is_held(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where more have come than are noted for a page; and its use is not forgiven."""
    monkeypatch.setattr(customers_module, "PENDING_MAX", 0)
    hub = PageHub(clock)
    publish(hub, clock, shop(ada="bucket"))
    node = DecidingNode(hub, clock)
    node.interval()
    used = node.admitted("ada", 60)
    node.go_on()

    assert 50 == used
    assert (False, "bucket") == (node.contracts.test("ada").pending, node.plan_of("ada"))
    assert 0 == node.admitted("ada", 60)


@pytest.mark.parametrize("noted", [0, 256])
def test_what_was_used_before_a_version_whose_page_came_is_not_forgiven(
    noted: int, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The customer was met by one version, and its page is fetched for another customer of the next one."""
    monkeypatch.setattr(customers_module, "PENDING_MAX", noted)
    hub = PageHub(clock)
    publish(hub, clock, shop(ada="bucket"))
    node = DecidingNode(hub, clock)
    node.interval()
    used = node.admitted("ada", 60)
    hub.away = True
    node.go_on()
    hub.away = False
    publish(hub, clock, shop(ada="bucket", bob="pro"))
    node.interval()
    node.contracts.forget_standings()
    node.contracts.hit("bob")
    node.interval()
    second = node.contracts.version

    assert (50, 2) == (used, second)
    assert {0} == node.held
    assert 0 == node.admitted("ada", 60)


def test_a_limit_that_holds_on_stays_when_a_further_one_comes(clock: ManualClock) -> None:
    """A page that was dropped and met again, under another plan of unknown customers, adds to what holds on."""
    customers = OnDemandCustomers(("00" * 32,), {}, meanwhile="unknown", wake=lambda: None)
    one, other = (Former("calls", Limit.parse(text), ("customer",), NOON_S) for text in ("5/minute", "7/hour"))
    customers.hold_on("ada", [one])
    customers.hold_on("ada", [one, other])

    assert {"ada": (one, other)} == customers.formers


def test_a_changed_page_is_in_force_when_it_has_come_and_the_former_until_then(
    hub: PageHub, clock: ManualClock, node: DecidingNode
) -> None:
    """Stale while it is revalidated: pages that do not come leave the version before in force, as a whole."""
    one, other = of_page(1, 4, 1)[0], of_page(3, 4, 1)[0]
    for each in (one, other):
        node.contracts.hit(each)
    node.go_on()
    before = {each: node.plan_of(each) for each in (one, other)}
    set_plan(hub, clock, one, "plan-19")
    set_plan(hub, clock, other, "plan-18")
    hub.lost = {digests(hub)[3]}
    node.interval()
    during = {each: node.plan_of(each) for each in (one, other)}
    hub.lost = set()
    node.interval()
    after = {each: node.plan_of(each) for each in (one, other)}

    assert before == during
    assert {one: "plan-19", other: "plan-18"} == after
    assert {reader.MISSING: 1} == node.reader.stats().rejected
    assert 3 == node.contracts.version
    assert not node.contracts.test(one).pending


def test_a_version_that_can_be_read_is_in_force_after_one_interval(
    hub: PageHub, clock: ManualClock, node: DecidingNode
) -> None:
    """No page that is held outlives its version by more; only pages that have changed are fetched."""
    customers = [of_page(number, 4, 1)[0] for number in range(4)]
    for each in customers:
        node.contracts.hit(each)
    node.go_on()
    fetched = node.reader.stats().pages_fetched
    for plan in ("plan-3", "plan-4", "plan-5"):
        set_plan(hub, clock, customers[0], plan)
        node.interval()
        assert plan == node.plan_of(customers[0])

    assert 3 == node.reader.stats().pages_fetched - fetched
    assert {0, 1, 2, 3} == node.held


def test_a_page_that_is_damaged_or_lost_is_refused_counted_and_said_once(
    hub: PageHub, clock: ManualClock, node: DecidingNode, caplog: pytest.LogCaptureFixture
) -> None:
    """Its customers are decided as unknown ones until it is sound; it is not asked for with every request."""
    damaged, lost = of_page(1, 4, 20), of_page(2, 4, 20)
    hub.damaged, hub.lost = {digests(hub)[1]}, {digests(hub)[2]}
    with caplog.at_level(logging.WARNING, logger="reconverge"):
        for _ in range(20):
            for each in (*damaged, *lost):
                node.contracts.hit(each)
            node.interval()
    rejected = node.reader.stats().rejected
    asked = max(hub.asked[digests(hub)[number]] for number in (1, 2))
    hub.damaged, hub.lost = set(), set()
    for _ in range(3):
        for each in (*damaged, *lost):
            node.contracts.hit(each)
        node.interval(1.0)

    assert {reader.DAMAGED, reader.MISSING} == set(rejected)
    assert 2 == sum("without their page" in each for each in caplog.messages)
    assert asked <= 5
    assert {1, 2} == node.held
    assert not any(node.contracts.test(each).pending for each in (*damaged, *lost))


def test_an_old_version_of_a_page_is_refused_in_place_of_a_new_one(
    hub: PageHub, clock: ManualClock, node: DecidingNode
) -> None:
    """Of a page that is held, whose version before stays in force, and of one that is met."""
    held, other = of_page(1, 4, 1)[0], of_page(3, 4, 1)[0]
    node.contracts.hit(held)
    node.go_on()
    before, plan = digests(hub), node.plan_of(held)
    set_plan(hub, clock, held, "plan-19")
    hub.old = {digests(hub)[1]: before[1]}
    node.interval()
    kept = node.contracts.version, node.plan_of(held)
    hub.old = {}
    node.interval()
    set_plan(hub, clock, other, "plan-19")
    hub.old = {digests(hub)[3]: before[3]}
    node.interval()
    node.contracts.hit(other)
    node.go_on()

    assert (1, plan) == kept
    assert "plan-19" == node.plan_of(held)
    assert (True, "plan-0") == (node.contracts.test(other).pending, node.plan_of(other))
    assert {reader.DAMAGED: 2} == node.reader.stats().rejected


def test_a_hub_that_is_away_is_asked_with_a_growing_pause(hub: PageHub, node: DecidingNode) -> None:
    """Known customers go on as before, others as unknown ones; and it is counted."""
    known, other = of_page(0, 4, 1)[0], of_page(1, 4, 1)[0]
    node.contracts.hit(known)
    node.go_on()
    plan = node.plan_of(known)
    hub.away = True
    for _ in range(30):
        node.contracts.hit(other)
        node.interval()

    assert plan == node.plan_of(known)
    assert node.contracts.test(other).pending
    assert hub.asked[digests(hub)[1]] <= 8
    assert {"connection"} == set(node.reader.stats().failures)
    hub.away = False
    node.interval(1.0)
    assert not node.contracts.test(other).pending


@pytest.mark.slow
def test_a_flood_of_names_fetches_each_page_once(hub: PageHub, node: DecidingNode) -> None:
    """100,000 names that stand on no page: four pages, and bounded tables of what is not known yet."""
    for number in range(20_000):
        node.contracts.hit(f"stranger-{number}")
    customers = node.contracts.document.customers
    assert isinstance(customers, OnDemandCustomers)
    pending = [len(each) for each in customers._pending.values()]
    node.go_on()
    for number in range(20_000, 40_000):
        node.contracts.hit(f"stranger-{number}")
    node.interval()

    assert [PENDING_MAX] * 4 == pending
    assert Counter(dict.fromkeys(digests(hub), 1)) == Counter({each: hub.asked[each] for each in digests(hub)})
    assert not node.contracts.test("stranger-1").pending


def test_a_flood_of_names_drives_no_page_out_of_which_a_customer_was_met(
    hub: PageHub, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the table is full, names fetch a bounded number of pages in an interval, and no page goes for them."""
    monkeypatch.setattr(page_fetching, "TABLE_BYTES_MIN", 0)
    monkeypatch.setattr(page_fetching, "FULL_PAGES", 1)
    probe = DecidingNode(hub, clock)
    probe.interval()
    probe.contracts.hit(of_page(0, 4, 1)[0])
    probe.go_on()
    node = DecidingNode(hub, clock, bytes_max=2 * probe.demand.bytes_held + 20_000)
    node.interval()
    real = [of_page(0, 4, 1)[0], of_page(1, 4, 1)[0]]
    for each in real:
        node.contracts.hit(each)
    node.interval()
    hub.asked.clear()
    for turn in range(10):
        for number in range(500):
            node.contracts.hit(f"stranger-{turn}-{number}")
        node.interval()
    flooded = sum(hub.asked.values())
    held = node.held
    newcomer = of_page(2, 4, 1)[0]
    node.contracts.hit(newcomer)
    for _ in range(3):
        node.interval()

    assert {0, 1} == held
    assert flooded <= 11
    assert 2 in node.held
    assert 2 == len(node.held)
    assert not node.contracts.test(newcomer).pending
    assert node.demand.bytes_held <= node.demand._bytes_max
    assert 1 == node.reader.stats().pages_dropped


@pytest.mark.parametrize("room", [100_000, 590_000])
def test_a_page_with_many_own_limits_has_room_and_is_fetched_no_more_often(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """It takes many times its length in memory, here 300 kB; names that stand nowhere fetch a page an interval."""
    monkeypatch.setattr(page_fetching, "TABLE_BYTES_MIN", 0)
    monkeypatch.setattr(page_fetching, "FULL_PAGES", 1)
    said = many(1000)
    said["customers"] = {
        each: {"plan": "plan-1", "limits": {"calls": f"{5000 + number}/minute"}}
        for number, each in enumerate(said["customers"])
    }
    hub = PageHub(clock)
    publish(hub, clock, said)
    node = DecidingNode(hub, clock, bytes_max=room)
    node.interval()
    customer = of_page(0, len(digests(hub)), 1)[0]
    node.contracts.hit(customer)
    node.go_on()
    hub.asked.clear()
    for turn in range(10):
        for number in range(20):
            node.contracts.hit(f"stranger-{turn}-{number}")
            node.go_on()
        node.interval()

    assert heaviest_page(node) > PAGE_BYTES_MAX
    assert not node.contracts.test(customer).pending
    assert {0} == node.held
    assert node.demand.bytes_held <= room
    assert sum(hub.asked.values()) <= 1 + 11


def heaviest_page(node: DecidingNode) -> int:
    return max(page.weight for page in node.demand.held.values())


def test_what_is_checked_is_not_in_use_for_it(hub: PageHub, clock: ManualClock) -> None:
    """A node with caps looks at all customers of a version; a page that only strangers have met stays one of those."""
    node = DecidingNode(hub, clock)
    node.interval()
    plans = {name: each for name, each in many(1).items() if name != "customers"}
    node.contracts = Contracts(Agent("memory://", clock=clock), plans, caps={"calls": "9000/minute"})
    node.demand._decider = node.contracts
    node.contracts.replace(node.reader.document, 1)
    stranger = next(each for each in map(str, range(100)) if page_number(each, 4) == 1)
    for each in (stranger, of_page(0, 4, 1)[0]):
        node.contracts.hit(each)
    node.go_on()
    node.contracts.test(of_page(0, 4, 1)[0])
    set_plan(hub, clock, of_page(2, 4, 1)[0], "plan-3")
    node.interval()

    assert 2 == node.reader.version
    assert {0: True, 1: False} == {number: page.met for number, page in node.demand.held.items()}


def test_what_no_customer_was_met_of_goes_before_what_was_used_long_ago() -> None:
    """Strangers may have a page be held while there is room; when there is none, it makes way first."""
    plans = checked(many(1, plans=2)).plans
    names = [of_page(number, 4, 1)[0] for number in range(4)]
    first, *others = (
        packed({names[number]: "plan-1"}, str(number), plans, number=number, pages=4) for number in range(4)
    )
    table = PageTable(3 * first.weight + 2)
    table[0] = first
    assert names[0] in first
    one, two, three = others
    for number, page in ((1, one), (2, two), (3, three)):
        page.last = this_moment()  # all are newer than what the first was used for
        table[number] = page
    held = [set(table.held)]
    assert names[2] in two
    assert names[3] in three
    table[1] = one
    held.append(set(table.held))

    assert [{0, 2, 3}, {1, 2, 3}] == held
    assert 2 == table.evicted


def test_a_page_that_is_not_in_use_is_dropped_and_others_are_not(clock: ManualClock, node: DecidingNode) -> None:
    """After an hour without a customer of it, or two; a customer that comes once an hour keeps its page."""
    busy, idle = of_page(0, 4, 1)[0], of_page(1, 4, 1)[0]
    for each in (busy, idle):
        node.contracts.hit(each)
    node.go_on()
    held = []
    for _ in range(3):
        for _ in range(2):
            node.contracts.hit(busy)
            node.interval(IDLE_S / 2 + 1)
        held.append(node.held)

    assert [{0, 1}, {0}, {0}] == held
    assert 1 == node.reader.stats().pages_dropped


def test_more_customers_on_more_pages_leave_no_customer_without_its_contract(
    hub: PageHub, clock: ManualClock, node: DecidingNode
) -> None:
    """When they are divided anew, the pages come first on which the customers stand of pages that are in use."""
    met = [of_page(number, 4, 1)[0] for number in range(3)]
    for each in met:
        node.contracts.hit(each)
    node.go_on()
    node.contracts.forget_standings()
    publish(hub, clock, many(3 * CUSTOMERS))
    node.interval()

    assert 16 == len(digests(hub))
    assert {number for number in range(16) if number % 4 < 3} == node.held
    assert [False] * 3 == [node.contracts.test(each).pending for each in met]


def test_changed_plans_are_in_force_for_pages_that_have_not_changed(
    hub: PageHub, clock: ManualClock, node: DecidingNode
) -> None:
    """Customers are checked against the new plans; one whose plan is gone keeps the whole version from being obeyed."""
    customer = of_page(1, 4, 1)[0]
    node.contracts.hit(customer)
    node.go_on()
    said = many(CUSTOMERS)
    quota = 500
    said["plans"][f"plan-{int(customer[-6:]) % 20}"] = {"limits": {"calls": f"{quota}/minute"}}
    said["customers"][customer] = f"plan-{int(customer[-6:]) % 20}"
    publish(hub, clock, said)
    node.interval()

    assert quota - 1 == node.admitted(customer, 600)


def test_what_is_held_is_kept_in_a_file_for_a_start_without_the_hub(
    hub: PageHub, clock: ManualClock, tmp_path: Path
) -> None:
    """The plans and the pages that were met; customers on others are decided as unknown ones."""
    node = DecidingNode(hub, clock, file=KeptFile(tmp_path / "kept"))
    node.interval()
    known, other = of_page(0, 4, 1)[0], of_page(1, 4, 1)[0]
    node.contracts.hit(known)
    node.go_on()
    node.interval(reader.KEPT_AGAIN_S)
    late = DecidingNode(PageHub(clock), clock, file=KeptFile(tmp_path / "kept"))

    assert 1 == late.contracts.version
    assert [False, True] == [late.contracts.test(each).pending for each in (known, other)]
    assert node.plan_of(known) == late.plan_of(known)


def test_a_hub_that_has_lost_its_data_is_told_what_all_nodes_hold(
    hub: PageHub, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Each puts the pages that it holds; the index follows when all are there, and not before."""
    nodes = [DecidingNode(hub, clock) for _ in range(2)]
    for number, each in enumerate(nodes):
        each.interval(0.2)
        for page in (2 * number, 2 * number + 1):
            each.contracts.hit(of_page(page, 4, 1)[0])
        each.go_on()
    before = digests(hub)
    hub.lose_data()
    for _ in range(25):
        nodes[0].interval(1.0)
    alone = hub._index
    for _ in range(25):
        for each in nodes:
            each.interval(1.0)

    assert alone is None
    assert "that this node does not hold" in caplog.text
    assert before == digests(hub)
    assert 1 == sum(each.reader.stats().restored for each in nodes)


@pytest.mark.slow
def test_a_small_document_is_held_whole(hub: PageHub, clock: ManualClock) -> None:
    """Below the number of pages from which on they are fetched on demand, nothing is as it was not before."""
    node = DecidingNode(hub, clock)
    node.reader._on_demand_from = 5
    node.interval()

    assert checked(many(CUSTOMERS)) == node.contracts.document
    assert None is node.reader.stats().pages_held
    publish(hub, clock, many(3 * CUSTOMERS))
    node.interval()
    assert 0 == node.reader.stats().pages_held
    publish(hub, clock, shop(ada="pro"))
    node.interval()
    assert "pro" == node.contracts.document.customers["ada"].plan
    assert None is node.reader.stats().pages_held


def test_a_cap_of_the_node_that_does_not_fit_keeps_the_page_away(hub: PageHub, clock: ManualClock) -> None:
    """The page is refused and counted, and no decision fails for it."""
    plans = {"free": {"limits": {"calls": "50/second"}}}
    said = {"unknown": "free", "plans": plans, "customers": {"ada": {"plan": "free", "limits": {"calls": "9/hour"}}}}
    publish(hub, clock, said)
    node = DecidingNode(hub, clock)
    said.pop("customers")
    node.contracts = Contracts(Agent("memory://", clock=clock), said, caps={"calls": "70/second"})
    node.demand._decider = node.contracts
    node.interval()
    node.contracts.hit("ada")
    node.go_on()

    assert {reader.INVALID: 1} == node.reader.stats().rejected
    assert node.contracts.hit("ada").pending


def test_requests_that_may_wait_have_the_page(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """`ask` and `ask_blocking` of the first request of a customer are decided by its own contract."""
    operator.publish(redis_server.url, many(CUSTOMERS))
    agent = make_agent(redis_server.url, namespace="shop")
    contracts = Contracts(agent, PLANS)
    follow_hub(contracts, secret=SECRET, hold="on-demand")
    agent.start()
    eventually(lambda: 1 == contracts.version, "the first version")
    one, other, third = (of_page(number, 4, 5)[-1] for number in range(3))
    asked = contracts.ask_blocking(one, within=5.0)
    awaited = asyncio.run(contracts.ask(other, within=5.0))
    at_once = contracts.ask_blocking(third, within=0)

    assert [False, False, True] == [each.pending for each in (asked, awaited, at_once)]
    assert f"plan-{int(one[-6:]) % 20}" == asked.plan
    eventually(lambda: not contracts.hit(third).pending, "the page of the third")


def test_so_many_requests_wait_for_a_page_and_no_more(hub: PageHub, node: DecidingNode) -> None:
    """Further ones are decided from memory; those that wait go on when the version is another one."""
    customers = node.contracts.document.customers
    assert isinstance(customers, OnDemandCustomers)
    assert not customers.meet("customer-000001")
    waiting = [customers.arrival("customer-000001") for _ in range(WAITING_MAX + 1)]

    assert None is waiting[-1]
    customers.release()
    assert all(each is not None and each.done() for each in waiting[:-1])


def test_a_request_that_waits_no_longer_leaves_nothing_behind(hub: PageHub, node: DecidingNode) -> None:
    """Neither one whose time is over, nor one that is cancelled; and the page may come all the same."""
    customers = node.contracts.document.customers
    assert isinstance(customers, OnDemandCustomers)

    async def in_vain() -> None:
        pending = await node.contracts.ask("customer-000001", within=0.001)
        assert pending.pending
        cancelled = asyncio.ensure_future(node.contracts.ask("customer-000001", within=10.0))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        assert cancelled.cancelled()

    asyncio.run(in_vain())
    late = node.contracts.ask_blocking("customer-000001", within=0.001)
    left = sum(map(len, customers._waiting.values()))
    node.go_on()

    assert late.pending
    assert 0 == left
    assert not node.contracts.hit("customer-000001").pending


def test_a_customer_that_was_not_met_is_explained_and_reset_as_what_it_is(
    hub: PageHub, clock: ManualClock, node: DecidingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not as an unknown one: it says that its contract is not there yet, and what cannot be reset is an error."""
    monkeypatch.setattr(contracts_module, "MEETING_S", 0.001)
    customer = of_page(1, 4, 1)[0]
    explained = [node.contracts.explain(customer), asyncio.run(node.contracts.explain_fleet(customer))]
    with pytest.raises(HubUnavailable, match="nothing was reset"):
        node.contracts.reset(customer)
    node.go_on()
    node.contracts.hit(customer)
    node.contracts.reset(customer)
    after = node.contracts.explain(customer)

    assert [NOT_MET, NOT_MET] == [each.problem for each in explained]
    assert all(each.sentence.startswith("as far as this server knows") for each in explained)
    assert ("", 0) == (after.problem, after.limits[0].used)


def test_an_erased_customer_leaves_no_name_in_tables_of_what_is_met(node: DecidingNode) -> None:
    """While its page is under way, and where it stands on none."""
    customers = node.contracts.document.customers
    assert isinstance(customers, OnDemandCustomers)
    node.contracts.hit("ada")
    node.contracts.hit("bob")
    customers.are_absent(["ada", "eve"])
    asyncio.run(node.contracts.forget("ada", wait=0))

    assert "ada" not in repr([customers._pending, customers._absent, node.contracts._standings])
    assert ["eve"] == list(customers._absent)
    assert ["bob"] == [each for names in customers._pending.values() for each in names]


def test_names_that_are_absent_are_forgotten_when_there_are_too_many(node: DecidingNode) -> None:
    """The table of them is bounded."""
    customers = node.contracts.document.customers
    assert isinstance(customers, OnDemandCustomers)
    for number in range(3):
        customers.are_absent([f"{number}-{each}" for each in range(ABSENT_MAX // 2)])

    assert ABSENT_MAX // 2 == len(customers._absent)
    assert customers.meet(f"2-{1}")


def test_settings_without_an_effect_are_errors(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A word that is none, memory for pages where all are held, too little of it, and a package that is missing."""
    contracts = Contracts(Agent(redis_server.url, namespace="shop"), PLANS)
    wrong: list[dict[str, Any]] = [
        {"hold": "some"},
        {"meanwhile": "allowed"},
        {"hold": "all", "page_bytes": TABLE_BYTES_MIN},
        {"hold": "all", "meanwhile": "refused"},
        {"page_bytes": TABLE_BYTES_MIN - 1},
    ]
    for each in wrong:
        with pytest.raises(InvalidSetting):
            follow_hub(contracts, secret=SECRET, **each)
    monkeypatch.setitem(__import__("sys").modules, "reconverge.contracts.on_demand.page_fetching", None)
    with pytest.raises(MissingExtra, match=r"reconverge\[contracts\]"):
        follow_hub(contracts, secret=SECRET, hold="on-demand")
    assert None is follow_hub(contracts, secret=SECRET)._on_demand
    assert FULL_PAGES > 0
    assert PagesOnDemand is not None
