"""Goal: the finder for aiohttp's own request finds the key that the key function would have found."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from reconverge import Agent
from reconverge.integrations import by_header, by_ip, by_user
from reconverge.integrations.aiohttp import Limits
from reconverge.integrations.aiohttp.request import AiohttpRequest
from reconverge.integrations.aiohttp.request_keys import finder_for
from reconverge.integrations.web.request.addresses import Addresses
from reconverge.integrations.web.request.keys import by_ip_network
from tests.integrations.finders.made import made_of

PEERS = ["", "192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1", "not an address", "x" * 80]


class Connection(asyncio.Transport):
    """A transport of which only the address at its other end is known."""

    def __init__(self, peer: tuple[str, int] | None) -> None:
        super().__init__({"peername": peer})


def request_of(fields: list[tuple[str, str]], peer: str | None = "192.0.2.1") -> web.Request:
    transport = Connection(None if peer is None else (peer, 443))
    return make_mocked_request("GET", "/", headers=CIMultiDict(fields), transport=transport)


@given(
    fields=st.lists(st.tuples(st.sampled_from(["x-key", "X-Key", "other"]), st.sampled_from(["", "a", "A", "a, b"]))),
    peer=st.one_of(st.none(), st.sampled_from(PEERS)),
    key_func=st.sampled_from([by_header("X-Key"), by_ip, by_ip_network(48)]),
)
def test_the_finder_finds_what_the_key_function_finds(
    fields: list[tuple[str, str]], peer: str | None, key_func: Any
) -> None:
    """Also for a header that occurs twice, and a peer without an address."""
    addresses, request = Addresses(), request_of(fields, peer)
    find = finder_for(key_func, addresses)
    assert find is not None

    assert key_func(AiohttpRequest(request, addresses)) == find(request)


def test_a_key_that_depends_on_more_is_left_to_the_key_function() -> None:
    """A user is found where the application keeps it, and an address behind a proxy in header fields."""
    assert finder_for(by_user, Addresses()) is None
    assert finder_for(by_ip, Addresses(["10.0.0.0/8"])) is None
    assert finder_for(lambda request: request.header("x-key"), Addresses()) is None


@pytest.mark.parametrize("of_handler", [True, False])
async def test_for_a_request_that_has_its_key_in_a_header_no_object_is_made(
    of_handler: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Admitted, and refused, by the middleware and by a limit of the handler."""
    made = made_of(monkeypatch, AiohttpRequest)

    async def handler(_request: web.Request) -> web.Response:
        return web.Response()

    limits = Limits(None if of_handler else "1/minute", agent=Agent("memory://"), key_func=by_header("x-key"))
    handle = limits.limit("1/minute")(handler) if of_handler else handler
    answers = [await limits.middleware(request_of([("X-Key", "ada")]), handle) for _ in range(2)]

    assert [200, 429] == [answer.status for answer in answers]
    assert [] == made
