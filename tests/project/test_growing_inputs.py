"""Goal: whatever a stranger writes is read in time proportional to its length, or not at all.

Method: every place where text comes from outside is given texts of one, two and four times a length, made of what has
a meaning there, over and over. The work of reading them is counted, and not timed (`tests/support/work.py`); the
regular expressions on the way are counted in `test_expressions.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import sys
import unicodedata
from collections.abc import Callable, Iterator
from http.cookies import SimpleCookie
from types import FrameType, SimpleNamespace
from typing import Any, Final

import pytest
from starlette.requests import Request

from reconverge import Agent, Limit
from reconverge.clock import SystemClock
from reconverge.contracts.document import checked, checked_customer
from reconverge.integrations import Guard, PlainRequest, Rule, by_header
from reconverge.integrations.asgi import RateLimitMiddleware
from reconverge.integrations.asgi.middleware import AsgiRequest
from reconverge.integrations.clients.server_fields import heard
from reconverge.integrations.console.access import Access
from reconverge.integrations.contracts import reading
from reconverge.integrations.contracts.door import facts_in
from reconverge.integrations.contracts.tokens import TokenTable
from reconverge.integrations.customer_links import CustomerLinks
from reconverge.integrations.dropin.shared_agent import key_of as dropin_key_of
from reconverge.integrations.grpc.request import GrpcRequest, address_of
from reconverge.integrations.web.request.addresses import FORWARDED, X_FORWARDED_FOR, Addresses, grouped
from reconverge.integrations.web.request.keys import written
from reconverge.integrations.web.request.paths import Places, key_of
from reconverge.integrations.web.request.read_path import ReadPath, below_mount, normal_forms
from reconverge.integrations.wsgi import RateLimitMiddleware as WsgiMiddleware
from reconverge.limiter.long_keys import REMEMBERED_CHARACTERS_MAX, fitting
from reconverge_sync.codec import decode_answer
from tests.support import poison
from tests.support.work import grows_too_fast, work_of

LENGTH: Final = 520
"""More than what is kept under its own name, and far less than the longest that is read."""
PARTS: Final = [
    "a",
    " ",
    "/",
    "/x/..",
    ";",
    ", ",
    "a=1;",
    "\\",
    '\\"',
    "%",
    "%25",
    "=",
    ":",
    "[",
    "(a ",
    "{a}",
    "-",
    "1",
    "1.",
    "|",
    "&a=1",
    "a;r=1,",
    "for=a,",
    'W/"1",',
    '{"a":',
    '{"a":1},',
    "\u0301\u0323",
    "\uff9e\u0f73",
    "\ufdfa",
    "\u00e9",
    "\n",
    "\x00",
]
"""Texts that have a meaning to some reader."""
AROUND: Final = [("", '!"'), ('a="', '"')]
"""The texts before and after it."""
TOKEN: Final = "a-token-of-sixteen-bytes"  # noqa: S105  # a test's own
GUARD: Final = Guard(Agent("memory://"), trusted_proxies=["10.0.0.0/8"])
BY_KEY: Final = [
    GUARD.declare(Rule(limits="1000000/second", name="key", key_func=by_header("x-api-key"))),
    GUARD.declare(Rule(limits="1000000/second", name="scope", key_func=by_header("x-api-key"), scope="api")),
]
PLACES: Final = Places(["/login", "/{a}-{b}", "/files/{name:path}/edit", "/{a}/{b}/c", "/api/*"])
ACCESS: Final = Access([f"ops: {TOKEN}, read"], behind_authentication=False, read_only=True, clock=SystemClock())
TOKENS: Final = TokenTable([f"ops: {TOKEN}, read"], is_open=False)
LINKS: Final = CustomerLinks(TOKEN, SystemClock())
PLANS: Final = checked({"plans": {"free": {"limits": {"api": "1/s"}}}}).plans


def asked(text: str = "", *, field: str = "", query: str = "", path: str = "/") -> Any:
    """A request of ASGI as a console and an API have it, with one header field or a query."""
    headers = [(field.encode(), text.encode("latin-1", "replace"))] if field else []
    scope = {"type": "http", "method": "GET", "path": path, "headers": headers, "root_path": ""}
    return Request({**scope, "query_string": query.encode("ascii", "replace")})


def body_of(text: str) -> Any:
    """Reads a text as the body of a request to the API."""

    async def receive() -> Any:
        return {"type": "http.request", "body": text.encode("utf-8", "replace"), "more_body": False}

    fields = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "PUT", "path": "/", "headers": fields, "query_string": b""}
    return asyncio.run(reading.json_of(Request(scope, receive), bytes_max=1 << 20))


async def _nowhere(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 404, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def _sent(_message: Any) -> None: ...


ASGI: Final = RateLimitMiddleware(
    _nowhere, guard=GUARD, rules=[Rule(limits="1000000/second", name="asgi", paths=["/login"])]
)
WSGI: Final = WsgiMiddleware(
    lambda _environment, start: start("404 Not Found", []) or [b""],
    guard=GUARD,
    rules=[Rule(limits="1000000/second", name="wsgi", paths=["/login"])],
)


def by_asgi(text: str) -> None:
    """A request of ASGI for a path."""
    scope = {"type": "http", "method": text, "path": f"/{text}", "headers": [], "query_string": b"", "root_path": "/x"}
    asyncio.run(ASGI({**scope, "client": (text, 1)}, None, _sent))  # type: ignore[arg-type]


def by_wsgi(text: str) -> None:
    """A request of WSGI for a path."""
    there = {"REQUEST_METHOD": text, "PATH_INFO": f"/{text}", "SCRIPT_NAME": "/x", "REMOTE_ADDR": text}
    list(WSGI(there, lambda *_: None))


class PatternRequest(PlainRequest):
    """A request of which a router tells a pattern with what the client wrote in it."""

    def seek_templates(self) -> list[str]:
        return [self.path]


def by_fields(text: str) -> None:
    """Reads as many header fields as the text has characters, of which several rules ask for one."""
    scope = {"headers": [(b"a", b"b")] * len(text), "path": "/"}
    request = AsgiRequest(scope, GUARD.addresses)
    details = SimpleNamespace(method="/a/b", invocation_metadata=[("a", "b")] * len(text))
    call = GrpcRequest(details, None, GUARD.addresses)
    for each in (request, call):
        for name in ("x-api-key", "x-api-key", "authorization"):
            each.single_header(name)


def forwarded(header: str) -> Callable[[str], object]:
    """Returns a reader of the field with which a trusted proxy names the client."""
    addresses = Addresses(["10.0.0.0/8"], header=header)
    return lambda text: addresses.client("10.0.0.1", lambda _name: text)


def said_by_server(name: str) -> Callable[[str], object]:
    """Returns a reader of a response field of a metered server."""
    return lambda text: heard(429, {name: text}, now=0.0)


def in_message(kind: str) -> Callable[[str], object]:
    """Returns a reader of a message of a broker, of which the beginning is good."""
    good = poison.good()[kind]
    return lambda text: poison.READERS[kind](good + text.encode("utf-8", "replace"))


READERS: Final[dict[str, Callable[[str], object]]] = {
    "path, of ASGI": by_asgi,
    "path, of WSGI": by_wsgi,
    "path, by rules": lambda text: PLACES.find(PatternRequest(path=text, inner_paths=[text])),
    "path, its forms": lambda text: list(normal_forms(text)),
    "path, strange": lambda text: ReadPath(text).is_strange,
    "path, below a mount": lambda text: below_mount(text, ["/x", text]),
    "route": key_of,
    "header fields": by_fields,
    "X-Forwarded-For": forwarded(X_FORWARDED_FOR),
    "Forwarded": forwarded(FORWARDED),
    "address": lambda text: (Addresses().client(text, lambda _name: None), grouped(text)),
    "key": lambda text: GUARD.check(PlainRequest(headers={"x-api-key": text}), BY_KEY),
    "key, of parts": lambda text: written((text, text)),
    "key, that fits": lambda text: fitting(text, 64),
    "key, of a drop-in": dropin_key_of,
    "peer of gRPC": address_of,
    "Retry-After": said_by_server("Retry-After"),
    "Date": said_by_server("Date"),
    "RateLimit": said_by_server("RateLimit"),
    "X-RateLimit": said_by_server("X-RateLimit-Remaining"),
    "cookie": lambda text: ACCESS.visitor(asked(text, field="cookie")),
    "Authorization": lambda text: ACCESS.visitor(asked(f"Bearer {text}", field="authorization")),
    "token": TOKENS.find,
    "origin": lambda text: ACCESS.sign_in(asked(text, field="origin"), text),
    "query": lambda text: reading.query_of(asked(query=text), None),
    "facts": lambda text: facts_in(asked(query=f"{text}={text}")),
    "If-Match": lambda text: reading.conditions_of(asked(text, field="if-match")),
    "body": body_of,
    "body, a text": lambda text: body_of(json.dumps({"a": text})),
    "body, many members": lambda text: body_of(json.dumps({str(each): text[:2] for each in range(len(text))})),
    "path, of the API": lambda text: reading.route_path({"path": text, "raw_path": text.encode()}),
    "link of a customer": LINKS.opened,
    "contract": lambda text: checked_customer(text, {"plan": text, "limits": {text: text}}, PLANS),
    "limit": Limit.parse_all,
    "answer of a hub": lambda text: decode_answer(text.encode("utf-8", "replace")),
    **{f"message, {kind}": in_message(kind) for kind in poison.READERS},
}


def calls_of(name: str, work: Callable[[], object]) -> int:
    """How often a function in C of that name is called in the course of some work."""
    count = 0

    def note(_frame: FrameType, event: str, called: Any) -> None:
        nonlocal count
        count += event == "c_call" and called.__name__ == name

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def text_of(part: str, length: int, begin: str = "", end: str = "") -> str:
    """A part over and over."""
    return begin + part * (length // len(part)) + end


def work_on(read: Callable[[str], object], text: str) -> int:
    """The work of reading a text; an error is an answer, too."""

    def try_to() -> None:
        with contextlib.suppress(Exception):
            read(text)

    try_to()  # as some of it is done once in a process
    return work_of(try_to)


def too_fast(read: Callable[[str], object]) -> list[str]:
    """The parts of texts on which the work of reading grows faster than the text."""
    return [
        f"{begin}{part}{end}"
        for part in PARTS
        for begin, end in AROUND
        if grows_too_fast(lambda length: work_on(read, text_of(part, length, begin, end)), LENGTH)  # noqa: B023  # at once
    ]


@pytest.mark.parametrize("name", READERS)
def test_the_work_of_reading_grows_as_the_text_does(name: str) -> None:
    """And no faster, whatever it consists of."""
    assert [] == too_fast(READERS[name])


class Fields(list[tuple[bytes, bytes]]):
    """The header fields of a request, which count how often they are gone through."""

    gone_through = 0

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        self.gone_through += 1
        return super().__iter__()


def test_a_header_field_is_looked_for_once_for_all_rules() -> None:
    """A client sends thousands of fields, and an application may have thirty rules that count by one."""
    fields = Fields([(b"x-api-key", b"ada")])
    rules = [Rule(limits="9/second", name=f"r{each}", key_func=by_header("x-api-key")) for each in range(30)]
    declared = [GUARD.declare(rule) for rule in rules]
    outcome = GUARD.check(AsgiRequest({"headers": fields, "path": "/"}, GUARD.addresses), declared)

    assert ["ada"] * 30 == [ruling.key for ruling in outcome.rulings]
    assert 1 == fields.gone_through


def test_a_long_key_is_hashed_once_for_all_rules() -> None:
    """A client writes 64 KB into the field that thirty rules count by; of more than that nothing is kept."""
    rules = [Rule(limits="9/second", name=f"h{each}", key_func=by_header("x-api-key")) for each in range(30)]
    declared = [GUARD.declare(rule) for rule in rules]
    hashes = [
        calls_of(
            "hexdigest", functools.partial(GUARD.check, PlainRequest(headers={"x-api-key": "k" * length}), declared)
        )
        for length in (REMEMBERED_CHARACTERS_MAX, REMEMBERED_CHARACTERS_MAX + 1)
    ]

    assert [1, 30] == hashes


def _by_slices(text: str) -> None:
    while text:
        text = text[1:]


def _by_looking_again(text: str) -> None:
    for _ in text:
        text.split("a")


def _by_sorting(text: str) -> None:
    unicodedata.normalize("NFKC", text)


@pytest.mark.parametrize(
    "planted", [_by_slices, _by_looking_again, _by_sorting, lambda text: SimpleCookie().load(text)]
)
def test_a_reader_that_takes_the_square_is_found(planted: Callable[[str], object]) -> None:
    """The library's reader of cookies is one, in many versions of Python."""
    assert [] != too_fast(planted)
