"""Goal: what decides by the scope of ASGI alone says what the guard's general way says, to the last byte and count.

Method: middlewares around the same application, one of which has a guard that goes the general way for each request,
are given the same connections by turns, under clocks that agree: scopes as servers make them, and as none should; rules
of all kinds. What is sent, what is left in the scope, what is counted and what is used is compared. And where a request
is to be decided by the scope, no object is made for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconverge import Agent
from reconverge.integrations import Guard, Outcome, Rule, by_header, by_ip
from reconverge.integrations.asgi import AsgiRequest, RateLimitMiddleware
from reconverge.integrations.asgi.scope_keys import finder_for
from reconverge.integrations.web.outcome import OUTCOME
from reconverge.integrations.web.request.addresses import ADDRESS_CHARACTERS_MAX, PEERS_MAX, Addresses, group_of_peers
from reconverge.integrations.web.request.keys import by_ip_network, by_user
from reconverge.integrations.web.straight import Admitted, Refused
from reconverge.testing import ManualClock
from tests.integrations.straight.compared import (
    ALL_BETWEEN,
    BANS,
    BETWEEN,
    GUARDS,
    ODD,
    START_S,
    Compared,
    General,
    made_of,
    plain,
    seen_in,
    with_one_of,
)
from tests.support.applications.asking import ADA, asgi_answer, http_scope
from tests.support.effort import tried

PATIENT: Final = "ask:10s"
KEY_FUNCTIONS: Final[Sequence[Any]] = (
    by_header("x-key"),
    by_header("X-Key"),
    by_ip,
    by_ip_network(48),
    by_ip_network(128),
    by_user,
)
PLAIN: Final = {**plain(KEY_FUNCTIONS), "status": st.sampled_from([429, 503])}
ONE_ODD: Final = with_one_of(ODD, PLAIN)
RULES: Final = st.one_of(st.fixed_dictionaries(PLAIN), ONE_ODD, st.fixed_dictionaries(PLAIN, optional=ODD))
VALUES: Final[Sequence[Any]] = (
    b"ada",
    b"ada",
    b"bob",
    b"",
    b"\xc3\xa9t\xc3\xa9",
    b"\xff",
    b"~nobody",
    b"~hashed:00",
    b"\x00",
    b"a|b%",
    b"x" * 600,
    "a text",
    None,
)
"""What a header field says; the last two as no server should."""
NAMES: Final = (b"x-key", b"x-key", b"x-key", b"X-Key", b"x-keys", b"x-forwarded-for", b"accept")
USUAL: Final = st.sampled_from([[(b"accept", b"*/*"), (b"x-key", name)] for name in (b"ada", b"bob")])
HEADERS: Final = USUAL | st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)) | st.just((b"x-forwarded-for", b"192.0.2.7, 10.0.0.2")),
    max_size=4,
)
SHAPES: Final[Sequence[Callable[[list[Any]], Any]]] = (
    list,
    list,
    tuple,
    iter,
    lambda headers: [*headers, (b"short",)],
    lambda headers: [list(each) for each in headers],
)
"""In what header fields come; the last but one as no server should."""
CLIENTS: Final[Sequence[Any]] = (
    *[("192.0.2.1", 50000)] * 12,
    ("192.0.2.1", 50001),
    ["192.0.2.2", 50000],
    ("10.0.0.1", 50000),
    ("::ffff:192.0.2.1", 50000),
    ("2001:db8::1", 50000, 0, 0),
    ("2001:db8::2%eth0", 50000),
    ("2001:DB8:0:0:1::1", 50000),
    ("[2001:db8::1]:80", 50000),
    ("192.0.2.1:80", 50000),
    (" 192.0.2.1 ", 50000),
    ("", 0),
    ("/run/service.sock", None),
    ("testclient", 50000),
    ("x" * ADDRESS_CHARACTERS_MAX, 1),
    (" " * ADDRESS_CHARACTERS_MAX + "192.0.2.1", 1),
    ("~nobody", 1),
    ("\x00", 1),
    (),
    None,
    (b"192.0.2.1", 1),
    (7, 1),
    (None, 1),
    ([], 1),
)
"""The other end of a connection; the last four as no server should."""
SCOPES: Final = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["http"] * 8 + ["websocket", "lifespan"]),
        "method": st.sampled_from(["GET", "GET", "HEAD", "OPTIONS", "POST", "brew"]),
        "headers": HEADERS,
        "shape": st.sampled_from(SHAPES),
        "client": st.sampled_from(CLIENTS),
        "without": st.sampled_from([()] * 8 + [("client",), ("headers",), ("method",)]),
    }
)
ANSWERS: Final[Sequence[Any]] = (
    [(b"content-type", b"text/plain")],
    [],
    None,
    [(b"RateLimit", b'"other";r=1'), (b"x-ratelimit-limit", b"9")],
    [(b"Retry-After", b"5")],
    [(b"content-type", b"text/plain"), (b"retry-after", b"9")],
)
"""The header fields of the application; None for none at all."""
STEPS: Final = st.lists(
    st.tuples(BETWEEN, SCOPES, st.sampled_from(ANSWERS), st.booleans()), min_size=5, max_size=tried(10, long=16)
)


class Side(Compared):
    """A middleware around an application that answers as it is told to."""

    def __init__(self, guard: type[Guard], rule: dict[str, Any], common: dict[str, Any]) -> None:
        super().__init__(guard, common)
        self.answer: tuple[Any, bool] = None, False
        self.middleware = RateLimitMiddleware(self._app, rules=[Rule(**rule)], guard=self.guard)
        limiter = self.middleware._rules[0]._limiter
        assert limiter is not None
        self.limiters = [limiter]

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        headers, as_generator = self.answer
        start: dict[str, Any] = {"type": "http.response.start", "status": 200}
        if scope["type"] == "websocket":
            await receive()
            start = {"type": "websocket.accept"}
        if headers is not None:
            start["headers"] = (each for each in headers) if as_generator else headers
        await send(start)
        if scope["type"] == "http":
            await send({"type": "http.response.body", "body": b"ok", "more_body": False})

    def said(self, drawn: dict[str, Any], answer: tuple[Any, bool]) -> Any:
        """What becomes of a connection: what is sent, or the error; and what the scope says that was decided."""
        self.answer = answer
        scope: dict[str, Any] = http_scope("/", method=drawn["method"])
        scope |= {"type": drawn["type"], "headers": drawn["shape"](drawn["headers"]), "client": drawn["client"]}
        for name in drawn["without"]:
            del scope[name]
        sent = list[Any]()

        async def receive() -> Any:
            return {"type": "websocket.connect"}

        async def send(message: Any) -> None:
            headers = message.get("headers")
            sent.append({**message, "headers": None if headers is None else list(headers)})
            if isinstance(headers, list) and headers is not answer[0]:
                headers.clear()  # as others may do that send it on

        try:
            asyncio.run(self.middleware(scope, receive, send))
        except Exception as error:  # noqa: BLE001  # of a scope that no server makes
            sent.append(repr(error))
        outcome = scope.get(OUTCOME)
        return sent, None if outcome is None else seen_in(outcome)


@settings(deadline=None, max_examples=tried(150, long=1500), suppress_health_check=[HealthCheck.too_slow])
@given(rule=RULES, bans=BANS, common=GUARDS, steps=STEPS)
def test_by_the_scope_and_the_general_way_the_same_is_said(
    rule: dict[str, Any],
    bans: dict[str, Any],
    common: dict[str, Any],
    steps: list[tuple[str, dict[str, Any], Any, bool]],
) -> None:
    """Sent, raised, left in the scope, charged and counted, whatever comes, and whatever changes meanwhile."""
    sides = [Side(guard, {**rule, **bans}, common) for guard in (Guard, General)]
    for between, scope, headers, as_generator in steps:
        for side in sides:
            side.meanwhile(between)
        by_scope, general = [side.said(scope, (headers, as_generator)) for side in sides]

        assert general == by_scope

    assert sides[1].counted() == sides[0].counted()


def _sides(**rule: Any) -> list[Side]:
    rule = {"limits": "2/minute", **rule}
    return [Side(guard, rule, {}) for guard in (Guard, General)]


def _drawn(**differently: Any) -> dict[str, Any]:
    usual = {"type": "http", "method": "GET", "headers": [(b"x-key", b"ada")], "client": ("192.0.2.1", 1)}
    return {**usual, "shape": list, "without": (), **differently}


@pytest.mark.parametrize("key_func", KEY_FUNCTIONS)
@pytest.mark.parametrize("missing", ["address", "shared", "refuse", "exempt"])
def test_of_each_kind_of_key_the_same_is_said(key_func: Any, missing: str) -> None:
    """Of all that a header field and the other end of a connection may be, also where two fields say something else."""
    sides = _sides(key_func=key_func, missing=missing)
    said = [[(b"x-key", value)] for value in VALUES]
    said += [[(b"x-key", b"ada"), (b"x-key", value)] for value in VALUES]
    said += [[(name, b"ada")] for name in NAMES] + [[]]
    drawn = [_drawn(headers=headers, shape=shape) for headers in said for shape in (list, iter)]
    drawn += [_drawn(client=client, headers=headers) for client in CLIENTS for headers in ([(b"x-key", b"eve")], [])]
    drawn += [_drawn(without=(name,)) for name in ("client", "headers", "method")]
    drawn += [_drawn(method=method, headers=[(b"x-key", b"bob")]) for method in ("HEAD", "OPTIONS", "brew")] * 2
    for each in drawn:
        by_scope, general = [side.said(each, ([], False)) for side in sides]

        assert general == by_scope
    assert sides[1].counted() == sides[0].counted()


@pytest.mark.parametrize("between", ALL_BETWEEN)
@pytest.mark.parametrize("answer", ANSWERS)
def test_what_happens_between_two_requests_is_heeded(between: str, answer: Any) -> None:
    """From the next one on: admitted and refused, and whatever the application answers itself."""
    sides = _sides(key_func=by_header("x-key"), block_after="2/minute", block_for="2 minutes")
    for number in range(9):
        if number == 2:
            for side in sides:
                side.meanwhile(between)
        by_scope, general = [side.said(_drawn(), (answer, number % 2 > 0)) for side in sides]

        assert general == by_scope
    assert sides[1].counted() == sides[0].counted()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The objects that were made for requests."""
    return made_of(monkeypatch, AsgiRequest)


@pytest.mark.parametrize("key_func", [by_header("x-key"), by_ip, by_ip_network(48)])
@pytest.mark.parametrize("headers_enabled", [True, False])
def test_for_a_request_that_says_its_key_no_object_is_made(
    key_func: Any, headers_enabled: bool, made: list[Any]
) -> None:
    """Else the comparison above would compare nothing: admitted, and refused."""
    agent = Agent("memory://", clock=ManualClock(start=START_S))
    app = RateLimitMiddleware(_hello, "1/minute", agent=agent, key_func=key_func, headers_enabled=headers_enabled)
    scopes = [http_scope("/", x_key="ada") for _ in range(2)]
    statuses = [asyncio.run(asgi_answer(app, scope)).status for scope in scopes]

    assert [200, 429] == statuses
    assert [Admitted, Refused] == [type(scope[OUTCOME]) for scope in scopes]
    assert [] == made


async def _hello(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


@pytest.mark.parametrize("more", [{"trusted_proxies": ["10.0.0.0/8"]}, {"trusted_proxies": ["unix"]}])
def test_where_a_proxy_is_believed_an_address_is_asked_for(more: dict[str, Any], made: list[Any]) -> None:
    """What header fields say of it is read by one piece of code alone."""
    app = RateLimitMiddleware(_hello, "1/minute", agent=Agent("memory://"), **more)
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


def test_a_request_in_doubt_asks_the_hub_as_ever(used_up: str) -> None:
    """Once; nothing was charged for it before, and from then on memory refuses."""
    with Agent(used_up, in_doubt=PATIENT) as agent:
        app = RateLimitMiddleware(_hello, rules=[Rule(limits="5/hour", name="requests")], agent=agent)
        scopes = [http_scope("/", client=ADA) for _ in range(2)]
        answers = [asyncio.run(asgi_answer(app, scope)) for scope in scopes]
        asks = agent.stats().limits["requests"].asks.results

    assert [429, 429] == [each.status for each in answers]
    assert [Outcome, Refused] == [type(scope[OUTCOME]) for scope in scopes]
    assert 1 == asks["refused"] == sum(asks.values())
