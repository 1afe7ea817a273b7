"""A console in front of a hub in memory, and a browser that has not signed in."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import Page, expect, sync_playwright

from reconverge import Agent
from reconverge.integrations.console import console
from reconverge_sync.memory import MemoryHub
from tests.support.browsing import PATIENCE_MS, WIDE
from tests.support.console import TOKENS, Browser
from tests.support.fixtures.agents import MakeAgent

CHROMIUM = shutil.which("chromium")
SECRET = "a-secret-of-the-fleet-that-is-long"  # noqa: S105  # a test's own


@pytest.fixture
def hub() -> MemoryHub:
    return MemoryHub()


@pytest.fixture
def agent(hub: MemoryHub, make_agent: MakeAgent) -> Agent:
    """The agent that the console is mounted beside; it obeys published settings."""
    made: Agent = make_agent(hub, namespace="shop", settings_secret=SECRET)
    made.limit("login", "2/hour", policy="strict")
    return made


@pytest.fixture
def client(agent: Agent) -> Iterator[Browser]:
    """A browser that has not signed in, at a console with tokens and switches."""
    with Browser(console(agent, tokens=TOKENS, settings_secret=SECRET)) as client:
        yield client


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    """A browser for all tests of a file; where merges are decided about, its absence is a failure.

    It has an event loop on this thread for as long as it is there, so not for longer than a file.
    """
    if CHROMIUM is None:
        missing = "there is no Chromium; install Debian's package chromium"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Chromium) -> Iterator[Page]:
    """A page without cookies, that fails its test when its script fails or its policy is broken."""
    context = chromium.new_context(viewport=WIDE, color_scheme="light")
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda said: problems.append(said.text) if "Content Security" in said.text else None)
    yield page
    context.close()

    assert [] == problems
