"""Goal: an operator with a browser sees why a request is refused, flips the kill switch and back, and is let in or not.

Method: Chromium without a screen, at a console that uvicorn serves under a prefix, with real nodes at a hub in memory.
With RECONVERGE_TEST_SCREENSHOTS, pictures of the pages are left in that folder, to be looked at.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from reconverge import Agent
from tests.support.browsing import NARROW, WIDE, check_accessible, check_fits, picture, sign_in
from tests.support.console import READER, WRITER
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow


def test_a_wrong_token_is_told_and_a_right_one_opens_the_console(page: Page, address: str) -> None:
    """Of a visitor that may read the buttons of switches do nothing."""
    sign_in(page, address, "a-token-that-is-wrong")
    expect(page.get_by_role("alert")).to_have_text("This token is not known here.")
    picture(page, "sign-in")

    sign_in(page, address, READER)

    expect(page.locator("#figures")).to_contain_text("3 nodes")
    expect(page.locator("#live")).to_have_text("live")
    page.get_by_role("link", name="Switches").click()
    expect(page.get_by_role("button", name="switch all limits off")).to_be_disabled()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()


def test_an_operator_sees_a_refused_customer_and_why(page: Page, address: str) -> None:
    """From the denials to the key's page, which says what is used and when there is room; a tag is text."""
    sign_in(page, address, READER)
    page.get_by_role("link", name="Keys", exact=True).click()

    page.locator("#rows-denials").get_by_role("link", name="ada <b>lovelace</b>").first.click()

    expect(page.get_by_role("heading", name="ada <b>lovelace</b> under login")).to_be_visible()
    quota = page.locator(".quota")
    expect(quota).to_contain_text("Requests are refused: 2 of 2 are used; one fits in ")
    assert "2" == quota.locator("progress").get_attribute("value")
    picture(page, "key")


def test_the_kill_switch_is_flipped_and_taken_back(page: Page, address: str, fleet: list[Agent]) -> None:
    """After it was said how many nodes and limits that is about; every node obeys. The keyboard is enough."""
    sign_in(page, address, WRITER)
    page.get_by_role("link", name="Switches").click()
    button = page.get_by_role("button", name="switch all limits off")
    expect(button).to_be_enabled()
    button.click()
    expect(page.get_by_role("dialog")).to_contain_text("This is obeyed by 3 nodes, for 3 limits.")
    picture(page, "confirm")
    page.keyboard.press("Escape")
    expect(button).to_have_attribute("aria-pressed", "false")

    button.click()
    page.get_by_role("button", name="Turn off").click()

    expect(button).to_have_attribute("aria-pressed", "true")
    eventually(lambda: {"off"} == {each.stats().limits["login"].switch for each in fleet}, "all nodes to obey")
    picture(page, "switches")
    page.get_by_role("button", name="switch all limits as nodes say").click()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    eventually(lambda: {"on"} == {each.stats().limits["login"].switch for each in fleet}, "all nodes to go back")


def test_an_operator_sees_what_a_stack_sheds_and_which_class(page: Page, address: str) -> None:
    """With its slots, its layers and its processes, and what waits for a slot; a tag in its name is text."""
    sign_in(page, address, READER)
    page.get_by_role("link", name="Shedding").click()

    part = page.locator("section.stack")
    expect(part.get_by_role("heading")).to_have_text("api <i>stack</i>")
    expect(part.locator(".said")).to_contain_text("refused a second (50 %), in 1 process.")
    expect(part.locator("#stack-0-classes tr").last).to_contain_text("100 % just now")
    expect(part.locator("#stack-0-layers")).to_contain_text("may have 3 at once in a process")
    expect(part.locator("#stack-0-processes tr")).to_have_count(1)
    expect(page.locator("#rows-slots")).to_contain_text("render")
    expect(page.locator("#rows-slots td").nth(2)).to_have_text("1")


def test_an_operator_sees_what_was_used_over_time(page: Page, address: str) -> None:
    """Bars and a table show the same; from the largest customers to one of them, per day and by limit."""
    sign_in(page, address, READER)
    page.get_by_role("link", name="Usage").click()
    expect(page.locator("#usage-said")).to_contain_text("All customers, all limits: cost")
    expect(page.locator("#usage-said")).to_contain_text("charges refused in 24 hours. A request is charged to each of")
    expect(page.locator("#rows-usage tr")).to_have_count(12)
    expect(page.locator("#usage-idle")).to_have_text("Nothing was used in the other 12 hours.")
    expect(page.locator("svg.bars rect.admitted")).to_have_count(24)
    expect(page.locator("svg.bars")).to_have_attribute("aria-label", re.compile("at most"))

    page.locator("#rows-usage-top").get_by_role("link", name="acme <b>").click()
    expect(page.locator("#usage-said")).to_contain_text("acme <b>, all limits")
    page.locator("#usage-limit").select_option("search")
    page.locator("#usage-what").select_option("cost")
    page.locator("#usage-period").select_option("day")
    page.locator("#find-usage").get_by_role("button").click()

    expect(page.locator("#usage-said")).to_contain_text("acme <b>, search: nothing was recorded in 30 days.")
    expect(page.locator("#usage-said")).to_contain_text("by a meter alone")
    expect(page.locator("svg.bars")).to_have_count(0)


def test_another_site_that_has_the_browser_send_a_form_changes_nothing(
    page: Page, address: str, fleet: list[Agent]
) -> None:
    """The operator is signed in, and opens a page of that site in the same browser."""
    sign_in(page, address, WRITER)
    expect(page.locator("#figures")).to_contain_text("3 nodes")
    body = '{"to": "off", "limit": null, "x": "='
    form = f"""<form id=f method=post enctype=text/plain action="{address}switch"><input name='{body}' value='"}}'>
        <button>Win a prize</button></form>"""
    page.route("http://evil.example/", lambda route: route.fulfill(body=form, content_type="text/html"))
    page.goto("http://evil.example/")

    with page.expect_response(f"{address}switch") as answered:
        page.get_by_role("button", name="Win a prize").click()

    assert answered.value.status in (401, 403)
    page.goto(f"{address}#switches")
    expect(page.locator("#switches-said")).to_contain_text("No switch is published")
    assert {"on"} == {each.stats().limits["login"].switch for each in fleet}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_every_page_fits_the_screen_and_can_be_read_by_all(page: Page, address: str, scheme: Any, size: Any) -> None:
    """In both colour schemes, on a wide screen and a narrow one; axe-core finds nothing serious."""
    page.set_viewport_size(size)
    page.emulate_media(color_scheme=scheme)
    page.goto(address)
    expect(page.get_by_label("Token")).to_be_visible()
    check_fits(page)
    check_accessible(page)
    sign_in(page, address, WRITER)
    expect(page.locator("#figures")).to_contain_text("3 nodes")
    for name, row in (
        ("overview", "login"),
        ("nodes", "ready"),
        ("limits", "login"),
        ("keys", "ada"),
        ("shedding", "render"),
        ("usage", "acme"),
        ("switches", "login"),
    ):
        page.goto(f"{address}#{name}")
        expect(page.locator(f"#page-{name}")).to_contain_text(row)
        check_fits(page)
        check_accessible(page)
        picture(page, f"{name}-{scheme}-{size['width']}")


def test_a_hidden_page_follows_nothing(page: Page, address: str) -> None:
    """Its stream ends; when it is looked at again the page goes on."""
    sign_in(page, address, READER)
    expect(page.locator("#live")).to_have_text("live")
    hide = "(hidden) => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});"
    page.evaluate(f"{hide} document.dispatchEvent(new Event('visibilitychange')); }}", True)
    expect(page.locator("#live")).to_have_text("paused")
    assert page.evaluate("stream === null")

    page.evaluate(f"{hide} document.dispatchEvent(new Event('visibilitychange')); }}", False)

    expect(page.locator("#live")).to_have_text("live")
