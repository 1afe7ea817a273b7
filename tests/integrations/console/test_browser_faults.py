"""Goal: while something fails the console says that, and claims nothing that it cannot know.

Method: Chromium at a console with three nodes, and answers of the console that are replaced on their way.
"""

from __future__ import annotations

from typing import Final

import pytest
from playwright.sync_api import Page, expect

from tests.support.browsing import FOLLOWED, sign_in
from tests.support.console import READER, WRITER

pytestmark = pytest.mark.slow

UNKNOWN: Final = "\N{EN DASH}"
TWO_TICKS: Final = "(before) => fleet.at > before + 2"


def switch_off(page: Page) -> None:
    """Turns all limits off, and says yes to it."""
    page.get_by_role("button", name="switch all limits off").click()
    page.get_by_role("button", name="Turn off").click()


@pytest.mark.parametrize("then", ["it is dismissed", "an action succeeds"])
def test_the_error_of_an_action_stays(page: Page, address: str, then: str) -> None:
    """The state of the fleet, which comes each second, does not replace it."""
    sign_in(page, address, WRITER)
    page.get_by_role("link", name="Switches").click()
    page.route("**/switch", lambda route: route.fulfill(status=500, json={"detail": "the switch has failed"}))
    switch_off(page)
    failed = page.get_by_role("alert")
    expect(failed).to_contain_text("the switch has failed")
    page.wait_for_function(TWO_TICKS, arg=page.evaluate("fleet.at"))
    expect(failed).to_contain_text("the switch has failed")

    if then == "it is dismissed":
        page.get_by_role("button", name="Dismiss").click()
    else:
        page.unroute("**/switch")
        switch_off(page)

    expect(failed).to_have_count(0)


TAKE: Final = """(changes) => {
    stream.close();
    stream = { readyState: EventSource.OPEN, close() {} };
    take({ ...fleet, at: fleet.at + 1, ...changes });
}"""


def followed(page: Page, address: str) -> None:
    """Opens the console, and waits until it shows all nodes and limits."""
    sign_in(page, address, READER)
    page.wait_for_function(FOLLOWED + " && !fleet.beginning && fleet.nodes.length === 3 && fleet.limits.length === 3")


def test_until_nodes_have_left_snapshots_a_console_waits(page: Page, address: str) -> None:
    """It shows no node as silent, and notes no change; a node leaves none unless it is watched."""
    followed(page, address)
    nodes = page.evaluate("fleet.nodes.map((each) => ({ ...each, state: 'silent' }))")
    page.evaluate(TAKE, {"beginning": True, "nodes": nodes})

    figures = page.locator("#figures")
    expect(figures.locator("dd:not(.said-of)")).to_have_text([UNKNOWN] * 5)
    expect(figures).to_contain_text("waiting for the first snapshots")
    page.evaluate(
        "(nodes) => take({ ...fleet, beginning: false, nodes })", [each | {"state": "ready"} for each in nodes]
    )
    expect(figures).to_contain_text("all are ready")
    expect(page.locator("#rows-changes")).to_contain_text("Nothing has changed")


def test_an_outage_of_the_hub_is_a_change_with_its_end(page: Page, address: str) -> None:
    """An operator who looks later sees when it was."""
    followed(page, address)
    page.evaluate(TAKE, {"problem": "the hub does not answer (timeout)"})
    page.evaluate("take({ ...fleet, problem: '' })")

    changes = page.locator("#rows-changes")
    expect(changes).to_contain_text("The console had no answer: the hub does not answer (timeout).")
    expect(changes).to_contain_text("The hub answers the console again.")


def test_what_cannot_be_known_without_the_hub_is_not_shown(page: Page, address: str) -> None:
    """Neither a rate nor a present exposure, of which only the bound holds; nor a point in a chart."""
    followed(page, address)
    bound = page.evaluate("number(fleet.limits.find((each) => each.name === 'search').bound)")
    points = page.evaluate(
        """() => {
            stream.close();
            stream = { readyState: EventSource.OPEN, close() {} };
            const before = chartOf(FLEET).seconds.length;
            take({ ...fleet, at: fleet.at + 1, problem: "the hub does not answer (timeout)",
                nodes: fleet.nodes.map((each) => ({ ...each, state: "silent", admitted_per_s: 0 })) });
            return [before, chartOf(FLEET).seconds.length];
        }"""
    )

    assert points[0] == points[1]
    figures = page.locator("#figures dd:not(.said-of)")
    expect(figures).to_have_text(["3 nodes", "not seen", UNKNOWN, UNKNOWN, UNKNOWN])
    search = page.locator("#rows-exposed tr", has_text="search")
    expect(search).to_contain_text(f"not known; at most {bound}")
    page.goto(f"{address}#limits")
    expect(page.locator("#rows-limits tr", has_text="search")).to_contain_text(f"not known; at most {bound}")
    expect(page.locator("#rows-limits tr", has_text="login").locator("td.number span").first).to_have_text(UNKNOWN)
