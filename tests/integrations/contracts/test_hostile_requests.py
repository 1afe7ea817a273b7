"""Goal: no request makes the API fail, wait, or grow; each is answered with what is wrong with it.

Method: a corpus of requests that lie, overflow, are cut off or are no text, each with the status that it deserves; and
books that fail.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconverge.contracts.document import checked
from reconverge.contracts.model import InvalidContracts
from reconverge.contracts.writing import table_of
from reconverge.errors import HubUnavailable, ReconvergeError
from reconverge.integrations.contracts.api import CONTRACT_BYTES_MAX, PAGE_MAX, contracts_api
from reconverge.integrations.contracts.reading import NESTING_MAX
from reconverge.testing import ManualClock
from tests.support.applications.asking import Answer, answer_of, http_scope
from tests.support.contracts import READER, TABLE, TOKENS, WRITER, ApiClient, FilledBook
from tests.support.effort import tried

JSON = {"Content-Type": "application/json"}


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


BODIES: list[tuple[bytes, int]] = [
    (b"", 400),
    (b"{", 400),
    (b"null", 422),
    (b"[]", 422),
    (b"7", 422),
    (b"true", 422),
    (b'""', 422),
    (b"'free'", 400),
    (b"\xef\xbb\xbf{}", 400),
    ('{"plan":"free"}'.encode("utf-16"), 400),
    (b'{"plan":"fr\xffee"}', 400),
    (b'{"plan":"\xed\xa0\x80"}', 400),
    (b'{"plan":"free","note":"\\ud800"}', 422),
    (b'{"plan":"free","\\udfff":1}', 422),
    (b'{"plan":"free","limits":{"\\ud800":"5/s"}}', 422),
    (b'{"plan":"free","note":NaN}', 400),
    (b'{"plan":"free","switch":{"to":"off","percent":Infinity}}', 400),
    (b'{"plan":"free","switch":{"to":"off","percent":1e999}}', 400),
    (b'{"plan":"free","switch":{"to":"off","percent":-1e-999}}', 201),
    (b'{"plan":"free","switch":{"to":"off","percent":' + b"9" * 5000 + b"}}", 400),
    (b'{"plan":"free","plan":"pro"}', 400),
    (b'{"plan":"free","plans":{}}', 422),
    (b'{"plan":{}}', 422),
    (b'{"plan":"free","limits":[]}', 422),
    (b'{"plan":"free","limits":{"burst":{}}}', 422),
    (b'{"plan":"free","limits":{"burst":"1/s;2/m"}}', 422),
    (b'{"plan":"free","limits":{"burst":"' + b"9" * 4000 + b'/s"}}', 422),
    (b'{"plan":"free","limits":{"none":"5/s"}}', 422),
    (b'{"plan":"free","since":"0001-01-01T00:00:00+23:59"}', 422),
    (b'{"plan":"free","switch":{"to":"off","until":"9999-12-31T23:59:59-23:59"}}', 422),
    (b'{"plan":"free","since":1e18}', 422),
    (b'{"plan":"free","former":[{}]}', 422),
    (b'{"plan":"free","former":' + nested(10) + b"}", 422),
    (nested(NESTING_MAX), 422),
    (nested(NESTING_MAX + 1), 400),
    (b'{"plan":"free","note":"\\ud83e\\udd8a \\\\ud83e"}', 201),
    (b'{"plan":"free","note":"\\udd8a\\ud83e"}', 422),
    (nested(100_000), 400),
    (b'{"a":' * 50_000, 400),
    (b'{"plan":"free","note":"' + b"x" * 1001 + b'"}', 422),
    (b"x" * (CONTRACT_BYTES_MAX + 1), 413),
    (b'"free"' + b" " * (CONTRACT_BYTES_MAX - 6), 201),
    (b'{"plan":"free","note":"\\u0000\\u202e<script>"}', 201),
]


@pytest.mark.parametrize(("body", "status"), BODIES, ids=range(len(BODIES)))
def test_a_body_is_understood_or_refused(writer: ApiClient, book: FilledBook, body: bytes, status: int) -> None:
    """With problem details, and with nothing changed, unless it makes sense."""
    answer = writer.send("PUT", "/contracts/initech", content=body, headers=JSON)

    assert status == answer.status_code
    if status >= 400:
        check_problem(answer)
        assert 1 == len(book._changes)
    else:
        assert 200 == writer.get("/contracts/initech").status_code


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"Content-Type": "application/json; charset=utf-8"}, 201),
        ({"Content-Type": 'Application/JSON;charset="UTF-8"'}, 201),
        ({"Content-Type": "application/json; charset=utf-16"}, 415),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "application/jsonp"}, 415),
        ({"Content-Type": ""}, 415),
        ({}, 415),
        ({**JSON, "Content-Encoding": "gzip"}, 415),
        ({**JSON, "Content-Encoding": "identity"}, 201),
        ({**JSON, "Content-Length": "9" * 30}, 413),
        ({**JSON, "Content-Length": "-1"}, 201),
    ],
    ids=range(12),
)
def test_a_body_is_json_in_utf_8(writer: ApiClient, fields: dict[str, str], status: int) -> None:
    """And says so; what a body claims of its length is not believed, but if it claims too much."""
    answer = writer.send("PUT", "/contracts/initech", content=b'"free"', headers=fields)

    assert status == answer.status_code


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 404),
        ("", 404),
        ("//", 404),
        ("/contracts/", 404),
        ("/contract", 404),
        ("/customers/acme", 404),
        ("/customers//explain", 404),
        ("/customers/acme/delete", 404),
        ("/contracts/%00", 422),
        ("/contracts/" + "a" * 512, 404),
        ("/contracts/" + "a" * 513, 422),
        ("/contracts/" + "%C3%A9" * 257, 422),
        ("/contracts/%ff", 400),
        ("/contracts/%ED%A0%80", 400),
        ("/contracts/%", 404),
        ("/contracts/..%2f..%2fetc%2fpasswd", 404),
        ("/contracts?limit=0", 400),
        (f"/contracts?limit={PAGE_MAX}", 200),
        (f"/contracts?limit={PAGE_MAX + 1}", 400),
        ("/contracts?limit=1e2", 400),
        ("/contracts?limit=%D9%A1", 400),
        ("/contracts?limit=" + "9" * 5000, 400),
        ("/contracts?limit=", 400),
        ("/contracts?limit=1&limit=2", 400),
        ("/contracts?limits=1", 400),
        ("/contracts?after=", 400),
        ("/contracts?after=%ff", 400),
        ("/contracts?after=%00", 400),
        ("/contracts?after=zzz", 200),
        ("/contracts?&&&", 200),
        ("/contracts?" + "&".join(f"a{number}=1" for number in range(100)), 400),
        ("/history?most=201", 400),
        ("/history?identity=" + "a" * 513, 400),
        ("/plans?after=a", 400),
        ("/customers/acme/explain?" + "user=" + "a" * 513, 400),
        ("/customers/acme/explain?no-name=1", 400),
        ("/customers/acme/explain?customer=globex", 400),
        ("/customers/acme/explain?self=1", 400),
        ("/customers/acme/explain?args=1&cost=2&kind=3", 200),
        ("/customers/acme/explain?" + "&".join(f"a{number}=1" for number in range(33)), 400),
        ("/customers/" + "a" * 513 + "/explain", 422),
    ],
    ids=range(41),
)
def test_a_path_is_understood_or_refused(reader: ApiClient, path: str, status: int) -> None:
    """With its query; a parameter without effect is told, and one that is there twice."""
    answer = reader.get(path)

    assert status == answer.status_code
    if status >= 400:
        check_problem(answer)


@pytest.mark.parametrize("method", ["POST", "PATCH", "OPTIONS", "TRACE", "DELETE", "PUT", "BREW", "get"])
@pytest.mark.parametrize("path", ["/contracts", "/plans", "/history", "/openapi.json"])
def test_a_method_that_there_is_not_is_told_those_that_there_are(writer: ApiClient, method: str, path: str) -> None:
    """405, also of methods that HTTP does not know."""
    answer = asyncio.run(messages(writer, method, path, b""))

    assert 405 == answer.status
    assert "GET, HEAD" == answer.headers["allow"]


@pytest.mark.parametrize("path", ["/history", "/rollback", "/openapi.json", "/customers/acme/explain"])
def test_a_condition_without_effect_is_refused(writer: ApiClient, path: str) -> None:
    """A client that relies on it would be wrong."""
    method = "POST" if path == "/rollback" else "GET"

    assert 400 == writer.send(method, path, headers={"If-Match": '"1"'}).status_code


def check_problem(answer: Any) -> None:
    """That a response is problem details of its own status, says what is wrong, and nothing of the inside."""
    problem = answer.json()
    assert "application/problem+json" == answer.headers["content-type"]
    assert answer.status_code == problem["status"]
    assert problem["detail"]
    assert len(answer.content) < 5000
    for inside in ("Traceback", "site-packages", ".py", WRITER, READER):
        assert inside not in answer.text


async def messages(client: ApiClient, method: str, path: str, *chunks: bytes, cut_off: bool = False) -> Answer:
    """Returns the answer to a request in such parts, after the last of which the client may go away."""
    scope = http_scope(path, method=method, authorization=f"Bearer {WRITER}", content_type="application/json")
    ahead: list[dict[str, Any]] = [{"type": "http.request", "body": each, "more_body": True} for each in chunks]
    ahead.append({"type": "http.disconnect"} if cut_off else {"type": "http.request", "body": b"", "more_body": False})
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return ahead.pop(0)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await client._app(scope, receive, send)
    return answer_of(sent)


def test_a_body_that_comes_byte_by_byte_is_put_together(writer: ApiClient) -> None:
    """Slow clients send it so."""
    chunks = [bytes([each]) for each in b'{"plan":"pro"}']

    assert 200 == asyncio.run(messages(writer, "PUT", "/contracts/acme", *chunks)).status


def test_a_body_without_an_end_is_not_read_to_it(writer: ApiClient) -> None:
    """It is refused when it is too long, however much there would be to come."""
    chunk = b" " * 65_536
    endless = [chunk] * 1000
    ahead = iter(endless)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": next(ahead), "more_body": True}

    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = http_scope(
        "/contracts/acme", method="PUT", authorization=f"Bearer {WRITER}", content_type=JSON["Content-Type"]
    )
    asyncio.run(writer._app(scope, receive, send))

    assert 413 == answer_of(sent).status
    assert len(list(ahead)) == 1000 - CONTRACT_BYTES_MAX // 65_536 - 1


def test_a_client_that_goes_away_changes_nothing(writer: ApiClient, book: FilledBook) -> None:
    """And is no error."""
    asyncio.run(messages(writer, "PUT", "/contracts/acme", b'"pr', cut_off=True))

    assert 1 == len(book._changes)


# -------------------------------------------------------------------- documents of any kind

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
words = st.sampled_from(
    [
        "plans", "customers", "unknown", "limits", "limit", "lasts", "then", "by", "switch", "to", "percent", "until",
        "plan", "since", "switches", "former", "note", "name", "costs", "soft", "align", "free", "a", "5/s", "P1D",
    ]
)  # fmt: skip
anything = st.recursive(
    leaves | words, lambda each: st.lists(each, max_size=3) | st.dictionaries(words, each, max_size=4), max_leaves=20
)


def places(said: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to everything in a table."""
    yield path
    for name in said if isinstance(said, dict) else range(len(said)) if isinstance(said, list) else ():
        yield from places(said[name], (*path, name))


def changed(said: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = said.copy()
    copy[path[0]] = changed(said[path[0]], path[1:], value)
    return copy


FULL: dict[str, Any] = json.loads(json.dumps(TABLE)) | {
    "customers": {
        "acme": {
            "plan": "free",
            "limits": {"burst": {"limit": "5/s", "algorithm": "token-bucket", "initial": 1, "costs": {"GET": 1}}},
            "since": "2026-11-23T12:00:00Z",
            "until": "2027-11-23T12:00:00Z",
            "then": "pro",
            "switch": {"to": "shadow", "percent": 5, "until": "2026-12-23T12:00:00Z"},
            "switches": {"daily": "off"},
            "former": [{"name": "burst", "until": "2026-11-23T12:00:00Z", "limit": "5/s", "by": ["customer"]}],
            "note": "x",
        }
    }
}


@settings(max_examples=tried(120, long=300), derandomize=True, deadline=None, database=None)
@given(st.sampled_from(list(places(FULL))), anything)
def test_a_document_with_anything_anywhere_is_read_or_refused(path: tuple[Any, ...], value: Any) -> None:
    """A document that is read can be written, and read again as the same; all else is an InvalidContracts."""
    try:
        document = checked(changed(FULL, path, value))
    except InvalidContracts:
        return

    assert document == checked(json.loads(json.dumps(table_of(document), allow_nan=False)))


# -------------------------------------------------------------------- books that fail


class AwayBook(FilledBook):
    """A book whose hub fails when it is read, or when it is changed."""

    def __init__(self, clock: ManualClock, error: Exception, *, reads: bool) -> None:
        super().__init__(clock, TABLE)
        self._error = error
        self._reads = reads

    async def read(self):  # type: ignore[no-untyped-def]
        if not self._reads:
            raise self._error
        return await super().read()

    async def replace(self, said, *, author, expected=None):  # type: ignore[no-untyped-def]
        raise self._error


@pytest.mark.parametrize(
    ("applied", "told"), [(None, "not known"), (True, "the change was made"), (False, "nothing has changed")]
)
def test_a_hub_that_is_away_is_told_with_what_became_of_the_change(
    clock: ManualClock, applied: bool | None, told: str
) -> None:
    """503 with the time to come again and the kind; the sentence, which may name hosts and users, is for the log."""
    error = HubUnavailable("timeout", "redis://admin@hub.example took too long", applied=applied)
    client = ApiClient(contracts_api(AwayBook(clock, error, reads=True), tokens=TOKENS, clock=clock))
    answer = client.put("/document", TABLE)

    assert (503, "timeout", applied) == (answer.status_code, answer.json()["kind"], answer.json()["applied"])
    assert int(answer.headers["retry-after"]) >= 1
    assert told in answer.json()["detail"]
    assert "example" not in answer.text


def test_an_outage_is_logged_once_in_a_while(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    """With the sentence, for operators; and again when it lasts."""
    error = HubUnavailable("refused", "nothing listens at port 6379")
    client = ApiClient(contracts_api(AwayBook(clock, error, reads=False), tokens=TOKENS, clock=clock))
    with caplog.at_level(logging.WARNING, logger="reconverge"):
        statuses = [client.get("/plans").status_code for _ in range(5)]
        clock.advance(61)
        statuses.append(client.get("/plans").status_code)

    assert [503] * 6 == statuses
    assert 2 == sum("nothing listens at port 6379" in each.getMessage() for each in caplog.records)


def test_contracts_that_cannot_be_used_are_no_bug_of_the_server(clock: ManualClock) -> None:
    """Such as those that are signed with another secret: 503, and the reason is for the log."""
    error = ReconvergeError("the contracts were signed with another secret")
    client = ApiClient(contracts_api(AwayBook(clock, error, reads=False), tokens=TOKENS))
    answer = client.get("/document")

    assert (503, "unusable", False) == (answer.status_code, answer.json()["kind"], answer.json()["applied"])
    assert "signed" not in answer.text


def test_a_bug_of_a_book_is_told_without_the_inside(clock: ManualClock) -> None:
    """And raised once the client has its answer, so that the server logs it."""
    client = ApiClient(contracts_api(AwayBook(clock, ZeroDivisionError("secret"), reads=False), tokens=TOKENS))
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    with pytest.raises(ZeroDivisionError):
        asyncio.run(client._app(http_scope("/plans", authorization=f"Bearer {WRITER}"), receive, send))

    assert 500 == answer_of(sent).status
    assert b"secret" not in answer_of(sent).body
    assert "application/problem+json" == answer_of(sent).headers["content-type"]
