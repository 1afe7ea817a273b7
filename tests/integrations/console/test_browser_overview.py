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


WRITTEN: Final = {
    "spoken('10/2678400s (sliding-window)')": "10 in 31 days (sliding-window)",
    "spoken('1000/60s')": "1000/minute",
    "spoken('2 in flight')": "2 in flight",
    "seconds(60)": "60 s",
    "seconds(1.24)": "1.2 s",
    "titleOf({ name: 'api@1000/60s~17e3441c', said: '1000/60s' })": "api, 1000/minute",
    "titleOf({ name: 'api#daily', said: '9/86400s' })": "api#daily",
    "exposureOf({ exposure: 63, bound: 63 })": "63 now and at worst".replace(" ", "\N{NO-BREAK SPACE}"),
    "leftOf({ used: 0, remaining: 1100, at_once: 1000 })": "0 of 1,000 used, 1,000 left, and 100 more are tolerated",
    "leftOf({ used: 4, remaining: 6, at_once: 10 })": "4 of 10 used, 6 left",
    "leftOf({ used: 1050, remaining: 50, at_once: 1000 })": "1,050 of 1,000 used, 0 left, and 50 more are tolerated",
    "whyMore({ used: 1050, remaining: 50, at_once: 1000 })": "50 over, which is tolerated.",
    "bar(5, 5, '').className": "full",
    "bar(539, 600, '').className": "",
    "bar(540, 600, '').className": "near",
    "bar(540, 600, '', { refuses: true }).className": "full",
    "bar(6, 5, '', { enforced: false }).className": "neutral",
    "overOf({ overadmitted: 2 })[0].textContent": "exceeded by 2 so far",
}
"""Texts of the page, by the expressions that make them."""


def test_numbers_and_names_are_written_for_readers(page: Page, address: str) -> None:
    """Without hashes, and with the colour and the words that say what they mean."""
    sign_in(page, address, READER)
    page.wait_for_function(FOLLOWED + " && !fleet.beginning")

    assert WRITTEN == {each: page.evaluate(each) for each in WRITTEN}


def test_ten_limits_are_on_the_first_page_and_a_link_leads_to_all(page: Page, address: str) -> None:
    """The changes stand above them."""
    sign_in(page, address, READER)
    page.wait_for_function(FOLLOWED + " && fleet.limits.length === 3")
    page.evaluate(
        """() => {
            stream.close();
            stream = { readyState: EventSource.OPEN, close() {} };
            const more = [...Array(9).keys()].map((each) => ({ ...fleet.limits[0], name: `more-${each}` }));
            take({ ...fleet, limits: [...fleet.limits, ...more] });
        }"""
    )

    expect(page.locator("#rows-exposed tr")).to_have_count(10)
    assert page.evaluate(
        "byId('rows-changes').getBoundingClientRect().top < byId('rows-exposed').getBoundingClientRect().top"
    )
    page.get_by_role("link", name="All 12 limits").click()
    expect(page.locator("#rows-limits tr")).to_have_count(12)


def test_a_series_of_zeros_is_no_line(page: Page, address: str) -> None:
    """It would say as much as the axis does."""
    sign_in(page, address, READER)
    page.wait_for_function(FOLLOWED)
    drawn = page.evaluate(
        """() => {
            for (const ago of [3, 2, 1]) record("y", fleet.at - ago, 4, 0);
            return chart("y", "minute", "spark").drawn;
        }"""
    )

    assert ["admitted"] == drawn


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
