"""Requests made of values, decided by a guard."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import date
from typing import Any, Final
from uuid import UUID

from reconverge import RateLimiter
from reconverge.integrations import PlainRequest, Rule, by_header, by_ip, by_route, by_user
from tests.integrations.corpus.drawing import ODD, Draw, Stand, seen_in

ITEMS: Final[Sequence[object]] = (
    "ada",
    "bob",
    "",
    None,
    "a|b",
    "a\\b",
    "reconverge:address:192.0.2.9",
    "\x00",
    "key\nwith lines",
    "ключ",
    "x" * 600,
    "é" * 200,
    "\ud800",
    "~nobody",
    "~hashed:00",
    7,
    0,
    -3,
    True,
    UUID(int=5),
    b"bytes",
    1.5,
    date(2026, 1, 1),
    ["a"],
)
"""Results of key functions: texts of all kinds, numbers, and values that are no key."""
KEYS: Final = (*["ada"] * 7, *ITEMS)
"""The same, most of them a usual one."""


def fails(_request: object) -> str:
    raise LookupError("a mistake of the application")


def by_item(request: Any) -> object:
    """The key that the case has put into the request, whatever its type."""
    return request.raw


async def by_item_slowly(request: Any) -> object:
    await asyncio.sleep(0)
    return request.raw


KEY_FUNCTIONS: Final[Sequence[Any]] = (by_ip, by_user, by_header("x-key"), by_route, by_item, by_item, fails)
PATHS: Final = (["/items"], ["/items/{number}"], ["/*"], ["/items", "/fails"])
MORE: Final = {**ODD, "paths": PATHS, "key_func": (by_item_slowly,)}


class FailingRequest(PlainRequest):
    """A request of whose path `/fails` a router cannot be asked."""

    def seek_templates(self) -> Sequence[str]:
        if self.path == "/fails%":
            raise LookupError("a mistake of a router")
        return self.templates


def run(draw: Draw) -> list[Any]:
    stand = Stand({name: value for name, value in draw.settings().items() if name != "trusted_proxies"})
    rules = [stand.guard.declare(Rule(**rule)) for rule in draw.rules(KEY_FUNCTIONS, MORE)]
    stand.limiters = [rule._limiter for rule in rules if isinstance(rule._limiter, RateLimiter)]
    said: list[Any] = []
    for _ in range(draw.randrange(4, 12)):
        stand.meanwhile(draw.meanwhile())
        request = FailingRequest(
            path=draw.one(("/items", "/items", "/items/7", "/other", "/ITEMS//", "/fails%")),
            method=draw.one(("GET", "GET", "POST", "HEAD", "BREW", "OPTIONS")),
            route=draw.one(("", "/items", "/items/{a|b}")),
            client=draw.one((None, "192.0.2.1", "192.0.2.1", "192.0.2.2", "2001:db8::1", "no address")),
            user=draw.one((None, "ada", 7)),
            headers=draw.one(({}, {"x-key": "ada"}, {"x-key": ""}, {"x-key": "a|b"})),
            raw=draw.one(KEYS),
        )
        outcome = asyncio.run(stand.guard.check_async(request, rules))
        said.append(seen_in(outcome))
        if draw.random() < 0.2:
            outcome.take_back()
            said.append(stand.counted()[2])
    return [*said, stand.counted()]
