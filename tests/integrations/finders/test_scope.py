"""Goal: the key of a request is found in the scope of ASGI itself, and no object is made for the request.

Method: what is made is noted; what is answered is compared with what was recorded, by the corpus.
"""

from __future__ import annotations

import asyncio
from functools import wraps
from typing import Any

import pytest

from reconverge import Agent
from reconverge.integrations import Rule, by_header, by_ip
from reconverge.integrations.asgi import AsgiRequest, RateLimitMiddleware
from reconverge.integrations.asgi.scope_keys import finder_for
from reconverge.integrations.web.outcome import OUTCOME
from reconverge.integrations.web.pipeline import Admitted, RefusedByOne
from reconverge.integrations.web.request.addresses import ADDRESS_CHARACTERS_MAX, PEERS_MAX, Addresses, group_of_peers
from reconverge.integrations.web.request.keys import by_ip_network
from reconverge.testing import ManualClock
from tests.integrations.corpus.drawing import START_S
from tests.integrations.finders.made import made_of
from tests.support.applications.asking import asgi_answer, hello, http_scope


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The objects that were made for requests."""
    return made_of(monkeypatch, AsgiRequest)


@pytest.mark.parametrize("key_func", [by_header("x-key"), by_ip, by_ip_network(48)])
@pytest.mark.parametrize("headers_enabled", [True, False])
def test_for_a_request_that_says_its_key_no_object_is_made(
    key_func: Any, headers_enabled: bool, made: list[Any]
) -> None:
    """Admitted, and refused."""
    agent = Agent("memory://", clock=ManualClock(start=START_S))
    app = RateLimitMiddleware(hello, "1/minute", agent=agent, key_func=key_func, headers_enabled=headers_enabled)
    scopes = [http_scope("/", x_key="ada") for _ in range(2)]
    statuses = [asyncio.run(asgi_answer(app, scope)).status for scope in scopes]

    assert [200, 429] == statuses
    assert [Admitted, RefusedByOne] == [type(scope[OUTCOME]) for scope in scopes]
    assert [] == made


@pytest.mark.parametrize("more", [{"trusted_proxies": ["10.0.0.0/8"]}, {"trusted_proxies": ["unix"]}])
def test_where_a_proxy_is_believed_an_address_is_asked_for(more: dict[str, Any], made: list[Any]) -> None:
    """One piece of code alone reads the proxy's header fields."""
    app = RateLimitMiddleware(hello, "1/minute", agent=Agent("memory://"), **more)
    asyncio.run(asgi_answer(app, http_scope("/")))

    assert 1 == len(made)


def test_a_function_around_one_of_ours_is_asked() -> None:
    """It may say something else, also where it has taken over all that the other one is called."""
    ours: Any = by_header("x-key")

    @wraps(ours)
    def another(request: Any) -> str:
        return f"tenant {ours(request)}"

    assert finder_for(ours, Addresses()) is not None
    assert finder_for(another, Addresses()) is None


def test_a_flood_of_addresses_is_not_kept() -> None:
    """Each is worked out by itself then; what is kept has a bound, and so has each text in it."""
    find, group = finder_for(by_ip, Addresses()), group_of_peers(64)
    assert find is not None
    before = group.cache_info().misses  # type: ignore[attr-defined]

    for number in range(1, 3 * PEERS_MAX + 1):
        host = f"2001:db8:{number:x}::7"
        assert f"2001:db8:{number:x}::/64" == find({"client": (host, number)})
    for number in range(10):
        text = f"{number}" * (ADDRESS_CHARACTERS_MAX + 1)
        assert text == find({"client": (text, number)})

    assert PEERS_MAX == group.cache_info().currsize  # type: ignore[attr-defined]
    assert 3 * PEERS_MAX == group.cache_info().misses - before  # type: ignore[attr-defined]


def test_header_fields_that_come_as_an_iterator_are_there_for_all_rules_and_the_application() -> None:
    """One look would use them up."""
    seen = list[Any]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.extend(scope["headers"])
        await hello(scope, receive, send)

    rules = [Rule(limits="5/minute", name=name, key_func=by_header("x-key"), missing="refuse") for name in ("a", "b")]
    limited = RateLimitMiddleware(app, rules=rules, agent=Agent("memory://"))
    scope = http_scope("/") | {"headers": iter([(b"x-key", b"ada")])}

    assert 200 == asyncio.run(asgi_answer(limited, scope)).status
    assert [(b"x-key", b"ada")] == seen
