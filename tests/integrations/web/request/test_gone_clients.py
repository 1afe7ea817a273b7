"""Goal: no client escapes its own count by resetting its connection before the server has looked where it comes from.

Method: requests as servers of ASGI tell of them, with and without the address of the other end.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import Any

import pytest

from reconverge import Agent
from reconverge.integrations import Rule, by_header
from reconverge.integrations.asgi import RateLimitMiddleware
from reconverge.integrations.web.request import addresses
from tests.support.applications.asking import ADA, asgi_answer, http_scope

SOCKET = ("/run/shop.sock", None)


class CountingApp:
    """An application with one limit of ten, that counts what it serves."""

    def __init__(self, **rule: Any) -> None:
        self.served = 0
        self.agent = Agent("memory://")
        self.app = RateLimitMiddleware(self._serve, rules=[Rule(limits="10/hour", **rule)], agent=self.agent)

    async def _serve(self, _scope: Any, _receive: Any, send: Any) -> None:
        self.served += 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def ask(self, client: str | None, server: object = ("127.0.0.1", 80), **headers: str) -> int:
        scope = http_scope("/", client=client, **headers) | {"server": server}
        return asyncio.run(asgi_answer(self.app, scope)).status


@pytest.mark.parametrize("missing", ["address", "shared", "refuse", "exempt"])
@pytest.mark.parametrize("key", [None, by_header("x-key")], ids=["by_ip", "by_header"])
def test_a_client_that_has_reset_its_connection_is_served_nothing_that_its_address_would_count(
    key: Any, missing: str
) -> None:
    """The rule for requests without a key does not matter: no response could reach that client."""
    shop = CountingApp(missing=missing, **({} if key is None else {"key_func": key}))
    shop.ask(ADA)
    before = shop.served

    assert 400 <= shop.ask(None) < 500
    assert before == shop.served


def test_a_client_that_has_reset_its_connection_is_counted_by_another_key_that_it_has() -> None:
    """Only its address is lost."""
    shop = CountingApp(key_func=by_header("x-key"))
    shop.ask(ADA)

    assert [200] * 10 + [429] == [shop.ask(None, x_key="ada") for _ in range(11)]


def test_clients_of_a_unix_socket_have_no_address_and_are_served() -> None:
    """All together, as ever."""
    shop = CountingApp()
    shop.ask(ADA)

    assert [200] * 10 + [429] == [shop.ask(None, SOCKET) for _ in range(11)]


def test_where_a_server_has_told_of_no_address_its_clients_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some adapters tell of none, and refusing would refuse all."""
    monkeypatch.setattr(addresses, "_read", lru_cache(addresses._read.__wrapped__))
    shop = CountingApp()

    assert [200] * 10 + [429] == [shop.ask(None) for _ in range(11)]
