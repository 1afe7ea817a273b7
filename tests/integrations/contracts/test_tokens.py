"""Goal: the API does what a token may do and nothing else, and shows no token.

Method: requests with every kind of credentials to every operation; tokens that are given wrongly.
"""

from __future__ import annotations

import logging
from typing import Any

import httpx
import pytest

from reconverge import Agent
from reconverge.contracts.document import checked
from reconverge.errors import InvalidSetting
from reconverge.integrations.contracts.api import contracts_api
from reconverge.integrations.contracts.door import DoorRoute
from reconverge.integrations.contracts.tokens import SECRET_BYTES_MAX, SECRET_BYTES_MIN, Token
from reconverge.testing import ManualClock
from tests.support.contracts import READER, TABLE, TOKENS, WRITER, ApiClient, FilledBook, LocalContracts

SECRET = "correct-horse-battery"  # noqa: S105  # of these tests


def routes() -> list[DoorRoute]:
    """All operations of an API that explains, too."""
    clock = ManualClock()
    contracts = LocalContracts(Agent("memory://", clock=clock), checked(TABLE))
    app = contracts_api(FilledBook(clock), tokens=TOKENS, contracts=contracts)
    return [each for each in app.routes if isinstance(each, DoorRoute)]


def method_and_path(route: DoorRoute) -> tuple[str, str]:
    return next(iter(route.methods or ())), route.path_format.replace("{identity}", "acme")


GUARDED = [each for each in routes() if each.role]
WRITING = [each for each in GUARDED if each.role == "write"]


@pytest.mark.parametrize("operation", GUARDED, ids=lambda each: each.name)
@pytest.mark.parametrize(
    "credentials",
    [None, "", "Bearer", "Bearer ", f"Basic {WRITER}", WRITER, f"Bearer {WRITER}x", f"Bearer {WRITER[:-1]}", "Bearer é",
     f"Bearer {WRITER} {WRITER}", f"Bearer\t{WRITER}"],
)  # fmt: skip
def test_without_a_known_token_nothing_is_served(
    book: FilledBook, contracts: LocalContracts, operation: DoorRoute, credentials: str | None
) -> None:
    """401 for every operation, with the scheme to use, before anything else is read; no token is shown."""
    client = ApiClient(contracts_api(book, tokens=TOKENS, contracts=contracts), token=None)
    headers = {} if credentials is None else {"Authorization": credentials.encode("latin-1")}
    answer = client.send(*method_and_path(operation), headers=headers)

    assert 401 == answer.status_code
    assert answer.headers["www-authenticate"].startswith('Bearer realm="contracts"')
    assert WRITER not in answer.text
    assert 1 == len(book._changes)


@pytest.mark.parametrize("operation", WRITING, ids=lambda each: each.name)
def test_a_token_that_may_read_changes_nothing(reader: ApiClient, book: FilledBook, operation: DoorRoute) -> None:
    """403 for every operation that changes something, whatever its body is."""
    answer = reader.send(*method_and_path(operation), content=b"{")

    assert (403, "portal") == (answer.status_code, answer.json()["detail"].split("'")[1])
    assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]
    assert 1 == len(book._changes)


@pytest.mark.parametrize("operation", [each for each in GUARDED if each.role == "read"], ids=lambda each: each.name)
@pytest.mark.parametrize("secret", [READER, WRITER])
def test_both_roles_may_read(book: FilledBook, contracts: LocalContracts, operation: DoorRoute, secret: str) -> None:
    """A token that may write may read, too."""
    client = ApiClient(contracts_api(book, tokens=TOKENS, contracts=contracts), token=secret)

    assert 200 == client.get(method_and_path(operation)[1]).status_code


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_scheme_is_understood_in_any_case(book: FilledBook, scheme: str) -> None:
    """HTTP ignores its case."""
    client = ApiClient(contracts_api(book, tokens=TOKENS), token=None)

    assert 200 == client.get("/plans", headers={"Authorization": f"{scheme} {READER}"}).status_code


async def test_two_tokens_at_once_are_none(book: FilledBook) -> None:
    """A proxy and a server could each believe another one."""
    client = ApiClient(contracts_api(book, tokens=TOKENS), token=None)
    fields: Any = httpx.Headers([("Authorization", f"Bearer {READER}"), ("Authorization", f"Bearer {WRITER}")])
    transport = httpx.ASGITransport(client._app)

    async with httpx.AsyncClient(transport=transport, base_url="http://api") as asking:
        assert 401 == (await asking.get("/plans", headers=fields)).status_code


def test_what_is_at_the_api_is_told_without_a_token(book: FilledBook) -> None:
    """The OpenAPI document says nothing that is not public."""
    assert 200 == ApiClient(contracts_api(book, tokens=TOKENS), token=None).get("/openapi.json").status_code


def test_an_open_api_asks_for_no_token(book: FilledBook) -> None:
    """History then says `anonymous`, and the OpenAPI document has no scheme."""
    client = ApiClient(contracts_api(book, open=True), token=None)
    client.put("/contracts/acme", "pro")
    document = client.get("/openapi.json").json()

    assert "anonymous" == client.get("/history").json()["changes"][0]["by"]
    assert "securitySchemes" not in document["components"]
    assert [] == [item for each in document["paths"].values() for item in each if "401" in each[item]]


def test_a_mapping_of_tokens_names_them_by_their_roles(book: FilledBook) -> None:
    """Which is what history says then."""
    client = ApiClient(contracts_api(book, tokens={SECRET: "write"}), token=SECRET)
    client.put("/contracts/acme", "pro")

    assert "write" == client.get("/history").json()["changes"][0]["by"]


@pytest.mark.parametrize(
    ("tokens", "problem"),
    [
        (None, "no token"),
        ([], "no token"),
        ({}, "no token"),
        (iter([]), "no token"),
        ({SECRET: "admin"}, "neither 'read' nor 'write'"),
        ({"write": SECRET}, "neither 'read' nor 'write'"),
        ({SECRET: None}, "neither 'read' nor 'write'"),
        ([f"console: write, {SECRET}"], "neither 'read' nor 'write'"),
        ([SECRET], "name: token, role"),
        (SECRET, "is a single text"),
        ([7], "neither a Token nor text"),
        ([f"console: {SECRET} {SECRET}, read"], "characters that a bearer token may not have"),
        ([f"console: {SECRET}é, read"], "characters that a bearer token may not have"),
        ({7: "read"}, "characters that a bearer token may not have"),
        ([f": {SECRET}, read"], "printable"),
        ([f"con\nsole: {SECRET}, read"], "printable"),
        ([f"{'x' * 101}: {SECRET}, read"], "printable"),
        ([f"one: {SECRET}, read", f"two: {SECRET}, write"], "same secret as 'one'"),
        ([f"ops: {SECRET}, read", f"ops: {SECRET}2, write"], "name of another token"),
        ([f"n: {SECRET}{number}, read" for number in range(101)], "more than 100"),
    ],
    ids=range(20),
)
def test_tokens_that_are_given_wrongly_are_told_without_being_shown(
    book: FilledBook, tokens: Any, problem: str
) -> None:
    """Also if the secret stands where the role or nothing belongs."""
    with pytest.raises(InvalidSetting, match=problem) as told:
        contracts_api(book, tokens=tokens)

    assert SECRET not in str(told.value)


@pytest.mark.parametrize("length", [SECRET_BYTES_MIN - 1, SECRET_BYTES_MAX + 1])
def test_a_token_has_a_length(length: int) -> None:
    """Both sides of the edges."""
    with pytest.raises(InvalidSetting, match=f"has {length} bytes"):
        Token("console", "x" * length, "read")
    inside = SECRET_BYTES_MIN if length < SECRET_BYTES_MIN else SECRET_BYTES_MAX

    assert inside == len(Token("console", "x" * inside, "read").secret)


def test_an_open_api_has_no_tokens(book: FilledBook) -> None:
    """One of the two settings would have no effect."""
    with pytest.raises(InvalidSetting, match="cannot be combined with tokens"):
        contracts_api(book, tokens=TOKENS, open=True)


def test_a_token_is_not_shown_when_it_is_printed() -> None:
    """Its name is."""
    assert "Token(name='console', role='read')" == repr(Token("console", SECRET, "read"))


def test_what_is_no_book_and_explains_nothing_is_told(book: FilledBook) -> None:
    """When the application is made, and not by the first request."""
    wrongs: list[dict[str, Any]] = [{"book": {}}, {"book": book, "contracts": object()}]
    for wrong in wrongs:
        with pytest.raises(InvalidSetting, match=r"is not a Book|lacks the methods"):
            contracts_api(tokens=TOKENS, **wrong)


def test_no_token_is_logged(writer: ApiClient, caplog: pytest.LogCaptureFixture) -> None:
    """No request has it logged."""
    caplog.set_level(logging.DEBUG)
    writer.put("/contracts/acme", {"plan": WRITER})
    writer.get("/nothing")

    assert WRITER not in "".join(each.getMessage() for each in caplog.records if each.name == "reconverge")
