"""Goal: an operator who opens the console sees first how the fleet is, and why a number is as it is.

Method: Chromium at a console with three nodes asked for more than they may admit, and a screen of 390 pixels.
"""

from __future__ import annotations

import re
from typing import Any, Final

import pytest
from playwright.sync_api import Page, expect

from reconverge import Agent
from tests.support.browsing import FOLLOWED, check_fits, sign_in
from tests.support.console import READER, WRITER

pytestmark = pytest.mark.slow

PHONE: Final[Any] = {"width": 390, "height": 844}
INVITE: Final = "invite-of-a-customer-by-another-customer-to-a-team-of-a-company"
ZEROS: Final = """() => [...document.querySelectorAll("main tbody tr")]
    .map((row) => [...row.querySelectorAll("td.number")].map((cell) => cell.innerText.trim()))
    .filter((cells) => cells.length > 1 && cells.every((text) => /^[0.,]*0( .?s| %)?$/.test(text)))"""
PAGES: Final = ("overview", "nodes", "limits", "keys", "shedding", "usage", "switches", "contracts", "audit")


@pytest.fixture
def exceeded(fleet: list[Agent]) -> None:
    """A limit that each node has admitted once of, although all together may once; and one that is not asked."""
    for each in fleet:
        each.limit(INVITE, "1/hour", policy="available")
        each.limit("unused", "9/hour")
    for each in fleet:
        each.limiter(INVITE).hit("ada")


def test_the_first_page_shows_fleet_hub_refusals_and_exposed_limits(page: Page, address: str) -> None:
    """Each in its place, before any other page is opened."""
    sign_in(page, address, READER)

    figures = page.locator("#figures")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    expect(figures).to_contain_text("3 nodes")
    expect(figures).to_contain_text("all are ready")
    expect(figures).to_contain_text(re.compile(r"answers.*staleness up to .* exchanges up to "))
    expect(figures).to_contain_text(re.compile(r"Refused[1-9][0-9.,]* /s"))
    login = page.locator("#rows-exposed tr", has_text="login")
    expect(login).to_contain_text("2 of 2 used")
    expect(login).to_contain_text("none")


def test_what_has_changed_is_told_with_the_author(page: Page, address: str, fleet: list[Agent]) -> None:
    """Of a switch its author; of what the page has seen itself, the moment."""
    sign_in(page, address, WRITER)
    expect(page.locator("#figures")).to_contain_text("3 nodes")
    page.get_by_role("link", name="Switches").click()
    page.get_by_role("button", name="switch search shadow").click()
    page.get_by_role("button", name="Put into shadow mode").click()
    page.get_by_role("link", name="Overview").click()

    changes = page.locator("#rows-changes")
    expect(changes).to_contain_text("has switched search to shadow.")
    expect(changes).to_contain_text("Limit search is shadow; it was on.")
    for each in fleet:
        each.limit("late", "5/hour")
    expect(changes).to_contain_text("Limit late has come")


def test_history_is_as_wide_as_the_page_and_survives_a_reload_until_sign_out(page: Page, address: str) -> None:
    """It is kept in the tab, and ends with the session."""
    sign_in(page, address, READER)
    page.wait_for_function("() => typeof chartOf === 'function' && chartOf(FLEET).seconds.length > 2")
    for chart in page.locator("figure.plot").all():
        assert page.locator("#figures").bounding_box()["width"] == chart.bounding_box()["width"]  # type: ignore[index]
    expect(page.locator("figure.plot")).to_have_count(2)
    expect(page.locator("figure.plot").last).to_contain_text("of 60 minutes followed in this tab")
    first = page.evaluate("chartOf(FLEET).seconds[0][0]")

    page.reload()

    page.wait_for_function(FOLLOWED)
    page.wait_for_function("() => typeof chartOf === 'function'")
    assert first == page.evaluate("chartOf(FLEET).seconds[0][0]")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    assert 0 == page.evaluate("sessionStorage.length")


def test_history_is_bounded_and_has_gaps_where_nothing_was_followed(page: Page, address: str) -> None:
    """Two hours of every second leave a minute and an hour; a break of ten minutes is none of the line."""
    sign_in(page, address, READER)
    page.wait_for_function(FOLLOWED)
    drawn = page.evaluate(
        """() => {
            const begin = 1.8e9;
            for (let at = begin; at < begin + 7200; at += 1) {
                if (at < begin + 5400 || at >= begin + 6000) record("x", at, 3, 1);
            }
            const { seconds, minutes } = chartOf("x");
            const points = SPANS.hour.points(chartOf("x"), begin + 7199);
            const path = line(points, 1, 5, SPANS.hour.gap);
            return [seconds.length, minutes.length, points.map((each) => each[1]), path.split("M").length - 1];
        }"""
    )

    assert [60, 50, [3] * 50, 2] == drawn


def test_a_key_that_shows_more_than_its_limit_has_the_reason_beside_it(
    page: Page, address: str, exceeded: None
) -> None:
    """On the overview, in the list of keys, and on the key's own page."""
    del exceeded
    reason = re.compile(
        "[12] over: nodes admit at the same time, before they hear of each other; available may go over by 2"
    )
    sign_in(page, address, READER)

    expect(page.locator("#rows-exposed tr", has_text="invite")).to_contain_text(reason)
    page.get_by_role("link", name="Keys", exact=True).click()
    expect(page.locator("#rows-keys tr", has_text="invite")).to_contain_text(reason)
    page.locator("#rows-keys tr", has_text="invite").get_by_role("link", name="ada").click()
    expect(page.locator(".quota")).to_contain_text(reason)


def test_a_limit_without_exposure_has_another_reason(page: Page, address: str) -> None:
    """Nodes that admit at the same time never take a strict limit past its quota."""
    sign_in(page, address, READER)
    page.wait_for_function(FOLLOWED + " && fleet.limits.some((each) => each.name === 'login')")

    reason = page.evaluate("whyOver(6, 5, 'login')")

    assert "1 over: requests have cost more than was reserved for them, or the quota was lowered." == reason


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("overview", ("Exposure", "Staleness", "Exchange")),
        ("nodes", ("Staleness", "Exchange")),
        ("limits", ("Exposure",)),
        ("shedding", ("Pressure",)),
    ],
)
def test_words_are_explained_on_the_page_and_at_the_column(
    page: Page, address: str, name: str, words: tuple[str, ...]
) -> None:
    """In one sentence each."""
    sign_in(page, address, READER)
    page.goto(f"{address}#{name}")
    section = page.locator(f"#page-{name}")

    for word in words:
        expect(section).to_contain_text(re.compile(rf"(An )?{word} is ", re.IGNORECASE))
        column = page.locator("th[title]", has_text=word).first
        expect(column).to_have_attribute("title", re.compile(rf"{word} is ", re.IGNORECASE))


def test_no_row_is_of_zeros_and_no_table_is_wider_than_a_phone(page: Page, address: str, exceeded: None) -> None:
    """A limit that was never asked is named below the table; a cell has the heading of its column before it."""
    del exceeded
    page.set_viewport_size(PHONE)
    sign_in(page, address, WRITER)
    expect(page.locator("#exposed-idle")).to_contain_text("unused (9/hour")
    for name in PAGES:
        page.goto(f"{address}#{name}")
        expect(page.locator(f"#page-{name} tbody tr").first).to_be_visible()
        check_fits(page)
        assert [] == page.evaluate(ZEROS), name
    page.goto(f"{address}#nodes")
    expect(page.locator("#rows-nodes td").nth(2)).to_have_attribute("data-label", "Staleness")
