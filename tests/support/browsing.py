"""A browser as an operator has it, with actions and checks of pages."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.support.applications.threaded import running, uvicorn_of

T = TypeVar("T")
PREFIX: Final = "/admin/limits"
PATIENCE_MS: Final = 30_000
NARROW: Final[Any] = {"width": 360, "height": 740}
WIDE: Final[Any] = {"width": 1280, "height": 800}
SCREENSHOTS: Final = "RECONVERGE_TEST_SCREENSHOTS"
"""The environment variable that names the folder for pictures."""
FOLLOWED: Final = "() => typeof fleet !== 'undefined' && fleet !== null"
"""An expression that is true in a page whose scripts run, and have received the state of the fleet."""


def apart(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine on a thread of its own: the browser has an event loop on this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


@contextmanager
def served(pages: Any, *others: Mount) -> Iterator[str]:
    """Yields the address of a console that is mounted under a prefix, beside other applications."""
    server = uvicorn_of(Starlette(routes=[*others, Mount(PREFIX, pages)]))
    pages.state.pages.go_on_while(lambda: not server.should_exit)
    with running(server) as port:
        yield f"http://127.0.0.1:{port}{PREFIX}/"


def sign_in(page: Page, address: str, token: str) -> None:
    page.goto(address)
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()


def picture(page: Page, name: str) -> None:
    """Saves a picture, if SCREENSHOTS names a folder."""
    folder = os.environ.get(SCREENSHOTS)
    if folder:
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


def check_fits(page: Page) -> None:
    """Checks that nothing is cut: no page or table is wider than the screen, and no text leaves its box."""
    wider: Any = page.evaluate(
        """() => [document.documentElement.scrollWidth - innerWidth,
            ...[...document.querySelectorAll("h1,h2,h3,p,button,dt,dd,a,.wide")]
                .filter((each) => each.offsetParent && each.scrollWidth > each.clientWidth + 1 && each.clientWidth)
                .map((each) => each.textContent)]"""
    )

    assert [0] == [max(0, wider[0]), *wider[1:]]


def check_accessible(page: Page) -> None:
    """Checks that axe-core finds neither serious nor critical faults."""
    found = Axe().run(page).response["violations"]

    assert [] == [
        (each["id"], each["impact"], node["html"])
        for each in found
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]
