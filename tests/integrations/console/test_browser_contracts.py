"""Goal: an operator sees a refused customer and why, raises its limit, and all nodes obey.

Method: Chromium at a console, with nodes that follow the contracts at a hub in memory, and a recording of requests.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from reconverge.clock import SECOND_NS, SystemClock
from reconverge.contracts.central import CustomerRequest
from reconverge.contracts.contracts import Contracts
from reconverge.contracts.following import follow_hub
from reconverge.contracts.store.hub_book import HubBook
from reconverge.integrations.console import Recording, console, customer_token
from reconverge.published.envelope import Secrets
from reconverge.published.publisher import publish
from reconverge.published.settings import FleetSettings, LimitOverride
from reconverge_sync.memory import MemoryHub
from tests.integrations.console.conftest import SECRET
from tests.support.browsing import NARROW, WIDE, apart, check_accessible, check_fits, picture, served, sign_in
from tests.support.console import READER, TOKENS, WRITER, forged_link
from tests.support.fixtures.agents import MakeAgent
from tests.support.kept_contracts import shop
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

LINK_SECRET = "a-secret-of-links-that-is-long"  # noqa: S105  # a test's own
NOON_NS = 1_764_000_000 * SECOND_NS


@pytest.fixture
def nodes(hub: MemoryHub, make_agent: MakeAgent) -> list[Contracts]:
    """Three nodes that follow the contracts at the hub, which a customer named acme has one of."""
    document = shop(acme={"plan": "pro", "limits": {"calls": "3/day"}}, ada={"plan": "free"})
    apart(HubBook(hub, "shop", Secrets(SECRET)).replace(document, author="grace"))
    now_s = SystemClock.wall_ns() // SECOND_NS
    switched = FleetSettings("shop", 1, now_s, now_s + 3600, limits={"unused": LimitOverride(switch="shadow")})
    apart(publish(hub, switched, Secrets(SECRET), author="<b>ada</b>"))
    made = []
    for _ in range(3):
        agent = make_agent(hub, namespace="shop", settings_secret=SECRET)
        contracts = Contracts(
            agent, {"unknown": "none", "plans": {"none": {"limits": {"calls": "1/day"}}}}, policy="strict"
        )
        follow_hub(contracts, secret=SECRET)
        agent.start()
        made.append(contracts)
    eventually(lambda: {each.version for each in made} == {1}, "all nodes to follow the contracts")
    return made


@pytest.fixture
def address(nodes: list[Contracts]) -> Iterator[str]:
    """A console with a recording, in which acme asks for six in a day."""
    requests = [CustomerRequest(NOON_NS + number * SECOND_NS, "acme") for number in range(6)]
    recording = Recording("yesterday.csv", requests)
    pages = console(
        nodes[0].agent, tokens=TOKENS, settings_secret=SECRET, recording=recording, customer_secret=LINK_SECRET
    )
    with served(pages) as address:
        yield address


def used_up(nodes: list[Contracts]) -> None:
    """Lets acme use all that its contract admits."""

    def all_used() -> bool:
        for each in nodes:
            each.hit("acme")
        return {each.explain("acme").limits[0].used for each in nodes} == {3}

    eventually(all_used, "acme to have used all on all nodes")


def test_a_limit_is_raised_and_every_node_obeys(page: Page, address: str, nodes: list[Contracts]) -> None:
    """After it was predicted what that changes; before that there is no button that saves it."""
    used_up(nodes)
    sign_in(page, address, WRITER)
    page.get_by_role("link", name="Contracts").click()
    page.get_by_role("textbox", name="Customer").fill("acme")
    page.locator("#find-customer").get_by_role("button").click()
    sentence = page.locator("#contract-sentence")
    expect(sentence).to_contain_text("acme may send 3 requests a day and has sent 3; it can go on in")
    expect(page.locator("#contract-standing")).to_contain_text("Refused; free again in")
    expect(page.get_by_role("button", name="Save")).to_have_count(0)

    page.get_by_label("calls (by the plan 1000/second)").fill("5/day")
    page.get_by_role("button", name="Predict").click()

    predicted = page.locator("#predicted")
    expect(predicted).to_contain_text("customers.acme.limits.calls.limit: 3/86400s -> 5/86400s")
    expect(predicted).to_contain_text("Then: acme may send 5 requests a day and has sent 3, and it may send")
    expect(predicted).to_contain_text("0 would be newly refused, and 2 newly admitted")
    picture(page, "predicted")
    check_fits(page)
    check_accessible(page)
    page.get_by_role("button", name="Save").click()
    expect(predicted).to_contain_text("Saved as version 2")
    expect(sentence).to_contain_text("acme may send 5 requests a day")
    eventually(lambda: {each.version for each in nodes} == {2}, "all nodes to obey")
    for each in nodes:
        assert 5 == each.explain("acme").limits[0].quota
    eventually(lambda: nodes[1].hit("acme").allowed, "acme to go on")
    page.get_by_role("link", name="Audit log").click()
    expect(page.locator("#rows-turned")).to_contain_text("<b>ada</b>")
    expect(page.locator("#rows-turned")).to_contain_text("shadow")
    expect(page.locator("#turned-by")).to_contain_text("consoles and commands")
    expect(page.locator("#rows-audit")).to_contain_text("write")
    expect(page.locator("#rows-audit")).to_contain_text("grace")
    picture(page, "audit")


def test_a_change_that_came_meanwhile_is_not_overwritten(
    page: Page, address: str, nodes: list[Contracts], hub: MemoryHub
) -> None:
    """The operator is told that the contracts have changed since."""
    del nodes
    sign_in(page, address, WRITER)
    page.goto(f"{address}#contract?identity=acme")
    page.get_by_label("calls (by the plan 1000/second)").fill("5/day")
    page.get_by_role("button", name="Predict").click()
    expect(page.get_by_role("button", name="Save")).to_be_visible()
    apart(HubBook(hub, "shop", Secrets(SECRET)).set_customer("acme", "free", author="grace"))

    page.get_by_role("button", name="Save").click()

    expect(page.locator("#predicted")).to_contain_text("the contracts are at version 2")


def test_a_plan_is_changed_for_all_customers_on_it(page: Page, address: str, nodes: list[Contracts]) -> None:
    """With how many they are before it is saved; nonsense is told, and nothing is saved."""
    sign_in(page, address, WRITER)
    page.goto(f"{address}#contracts")
    page.locator("#rows-plans").get_by_role("link", name="free").click()
    page.get_by_label("calls").fill("many")
    page.get_by_role("button", name="Predict").click()
    expect(page.locator("#predicted .problem")).to_contain_text("many")

    page.get_by_label("calls").fill("70/second")
    page.get_by_role("button", name="Predict").click()
    expect(page.locator("#predicted")).to_contain_text("It holds for 1 customer, on all nodes.")
    page.get_by_role("button", name="Save").click()

    expect(page.locator("#predicted")).to_contain_text("Saved as version 2")
    eventually(lambda: {each.explain("ada").limits[0].quota for each in nodes} == {70}, "all nodes to obey")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_pages_of_contracts_fit_the_screen_and_can_be_read_by_all(
    page: Page, address: str, scheme: Any, size: Any
) -> None:
    """In both colour schemes, on a wide screen and a narrow one; axe-core finds nothing serious."""
    page.set_viewport_size(size)
    page.emulate_media(color_scheme=scheme)
    sign_in(page, address, WRITER)
    looks = {
        "contracts": "acme",
        "contract?identity=acme": "calls",
        "plan?name=pro": "1 customer on it",
        "audit": "grace",
    }
    for place, text in looks.items():
        page.goto(f"{address}#{place}")
        expect(page.locator("main")).to_contain_text(text)
        expect(page.locator("main section:not([hidden])")).to_have_count(1)
        check_fits(page)
        check_accessible(page)
        picture(page, f"{place.partition('?')[0]}-{scheme}-{size['width']}")


def test_a_customer_sees_its_own_limits_by_a_link(page: Page, address: str, nodes: list[Contracts]) -> None:
    """How much is used and when it is free again, on every screen and in both schemes; a link that is over says so."""
    used_up(nodes)
    ends = SystemClock.wall_ns() // SECOND_NS
    links = {
        "mine": customer_token(LINK_SECRET, "acme", ends + 3600),
        "no-link": forged_link("acme", ends, LINK_SECRET),
    }
    schemes: list[Any] = ["light", "dark"]
    for size, scheme in itertools.product((WIDE, NARROW), schemes):
        page.set_viewport_size(size)
        page.emulate_media(color_scheme=scheme)
        for name, link in links.items():
            page.goto(f"{address}my-limits?link={link}")
            main = page.locator("main")
            expect(main).to_contain_text("free again in" if name == "mine" else "This link is not valid.")
            check_fits(page)
            check_accessible(page)
            picture(page, f"{name}-{scheme}-{size['width']}")
    page.goto(f"{address}my-limits?link={links['mine']}")

    expect(page.get_by_role("heading", name="acme")).to_be_visible()
    expect(page.locator("#my-cards")).to_contain_text("3 of 3 used, 0 left")
    expect(page.locator("#my-sentence")).to_contain_text("acme may send 3 requests a day and has sent 3")
    assert "3" == page.locator("progress").first.get_attribute("value")
    page.goto(address)
    expect(page.get_by_label("Token")).to_be_visible()


def test_a_visitor_that_may_only_read_changes_no_contract(page: Page, address: str) -> None:
    """The page shows how the customer stands, and no form."""
    sign_in(page, address, READER)
    page.goto(f"{address}#contract?identity=acme")
    expect(page.locator("#contract-sentence")).to_contain_text("acme may send 3 requests a day")
    expect(page.locator("#edit")).to_be_hidden()
