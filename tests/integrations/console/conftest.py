"""A console in front of a hub in memory, and a browser that has not signed in."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import Page, expect, sync_playwright

from reconverge import Agent
from reconverge.clock import SECOND_NS, SystemClock
from reconverge.hub.usage import Period
from reconverge.integrations.console import console
from reconverge.shedding import AdaptiveConcurrency, Fixed, Occupancy, Stack, WorkerShedder
from reconverge.usage.periods import period_at
from reconverge_sync.memory import MemoryHub
from tests.support.browsing import PATIENCE_MS, WIDE, apart, served
from tests.support.console import TOKENS, Browser
from tests.support.fixtures.agents import MakeAgent
from tests.support.used import recorded

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


@pytest.fixture
def fleet(hub: MemoryHub, agent: Agent, make_agent: MakeAgent) -> Iterator[list[Agent]]:
    """Three nodes that are asked for more than they may admit."""
    agents = [agent, *(make_agent(hub, namespace="shop", settings_secret=SECRET) for _ in range(2))]
    for each in agents:
        each.limit("login", "2/hour", policy="strict")
        each.limit("search", "1000/minute")
    hour = period_at("hour", SystemClock.wall_ns() / SECOND_NS)
    for ago in range(12):
        amount = 40 + 13 * ago % 60
        apart(recorded(hub, Period("hour", hour.number - ago), ("acme <b>", "search"), amount, amount, 2 * ago))
    over = threading.Event()
    stack = Stack(AdaptiveConcurrency(Fixed(3)), WorkerShedder(Occupancy(8)), name="api <i>stack</i>")
    render = agent.concurrency("render", 1, lease=30.0)

    def work() -> None:
        while not over.wait(0.02):
            for number, each in enumerate(agents):
                each.limiter("login").hit("ada <b>lovelace</b>")
                each.limiter("search").hit(f"user-{number}")
            held = [stack.enter("ada", name) for name in ("critical", "GET", "GET", "test")]
            for admission in held:
                admission.finish()

    def wait() -> None:
        while not over.is_set():
            with render.slot("ada", timeout=1.0):
                over.wait(0.2)

    threads = [threading.Thread(target=each) for each in (work, wait, wait)]
    for thread in threads:
        thread.start()
    yield agents
    over.set()
    for thread in threads:
        thread.join()


@pytest.fixture
def address(agent: Agent, fleet: list[Agent]) -> Iterator[str]:
    """Where the console is, under a prefix."""
    del fleet  # it works meanwhile
    with served(console(agent, tokens=TOKENS, settings_secret=SECRET)) as address:
        yield address
