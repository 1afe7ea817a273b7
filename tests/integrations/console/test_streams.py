"""Goal: no more pages follow a fleet at once than the cap says, and each that ends makes room for another.

Method: the requests of pages, to a console in this process, which end when the test says so.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from reconverge import Agent
from reconverge.integrations.console import console
from reconverge.integrations.console.streams import STREAMS_MAX
from tests.support.console import READER, TOKENS

SCOPE: Final[dict[str, Any]] = {
    "type": "http",
    "method": "GET",
    "path": "/stream",
    "query_string": b"",
    "headers": [(b"authorization", f"Bearer {READER}".encode())],
}


class Page:
    """One page that follows, until its client goes."""

    def __init__(self, app: Any) -> None:
        self.status = 0
        self.answered = asyncio.Event()
        self.gone = asyncio.Event()
        self._app = app

    async def follow(self) -> None:
        await self._app(dict(SCOPE), self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.answered.set()
        await asyncio.sleep(0)


async def all_at_once(app: Any, pages: int) -> list[int]:
    """The statuses of so many requests that begin in the same moment; all of them are over then."""
    asking = [Page(app) for _ in range(pages)]
    async with asyncio.TaskGroup() as tasks:
        for page in asking:
            tasks.create_task(page.follow())
        for page in asking:
            await page.answered.wait()
        for page in asking:
            page.gone.set()
    return [page.status for page in asking]


@pytest.mark.parametrize("gone", [False, True], ids=["goes", "gone-at-first"])
async def test_no_more_pages_follow_at_once_than_the_cap_says(agent: Agent, *, gone: bool) -> None:
    """However many ask in one moment; and a client that was gone before its first event has made room, too."""
    app = console(agent, tokens=TOKENS)
    if gone:
        early = Page(app)
        early.gone.set()
        await early.follow()
    first, again = await all_at_once(app, 3 * STREAMS_MAX), await all_at_once(app, STREAMS_MAX)

    assert (STREAMS_MAX, 2 * STREAMS_MAX) == (first.count(200), first.count(503))
    assert STREAMS_MAX == again.count(200)
