"""Goal: no call of the API stalls the application that it is mounted in, or costs more with each client that comes.

Method: the steps that take long, of a large document, note on which thread they run, and how often.
"""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any, Final

import pytest

pytest.importorskip("starlette", reason="what the API is made with")

import httpx

from reconverge.contracts import document as documents
from reconverge.contracts import writing
from reconverge.contracts.document import checked
from reconverge.contracts.model import InvalidContracts
from reconverge.contracts.store import changing, memory_book
from reconverge.contracts.store.changing import with_document
from reconverge.contracts.store.memory_book import MemoryBook
from reconverge.contracts.writing import table_of
from reconverge.integrations.contracts import api
from reconverge.integrations.contracts import reading as requests
from reconverge.integrations.contracts.api import contracts_api
from reconverge.integrations.contracts.long_work import WAITING_MAX, LongWork
from reconverge.integrations.contracts.problems import RETRY_AFTER_S, Problem
from reconverge.limit import Limit
from reconverge.limit.checks import KINDS_MAX

SAID: Final[dict[str, Any]] = {
    "plans": {"a": {"limits": {f"x{number}": "5/s" for number in range(100)}}, "b": {"limits": {"x0": "7/s"}}},
    "unknown": "a",
    "customers": {f"c{number}": "a" for number in range(400)},
}


def noted(monkeypatch: pytest.MonkeyPatch, where: Any, name: str) -> list[threading.Thread]:
    """The threads on which a function is called from now on."""
    threads: list[threading.Thread] = []
    do = getattr(where, name)

    def note(*arguments: Any, **named: Any) -> Any:
        threads.append(threading.current_thread())
        return do(*arguments, **named)

    monkeypatch.setattr(where, name, note)
    return threads


def answers_to(*requests_of: tuple[str, str, Any]) -> list[httpx.Response]:
    """Returns the answers of an open API with that document, one after another."""

    async def ask() -> list[httpx.Response]:
        book = MemoryBook(checked(SAID))
        transport = httpx.ASGITransport(contracts_api(book, open=True))
        async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
            return [await client.request(method, path, json=body) for method, path, body in requests_of]

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("request_of", "where", "name"),
    [
        (("PUT", "/document", SAID), requests, "_read"),
        (("PUT", "/document", SAID), changing, "checked"),
        (("PUT", "/document", SAID), changing, "with_document"),
        (("PUT", "/document", SAID), memory_book, "change_note"),
        (("POST", "/rollback", {"version": 1}), changing, "with_document"),
        (("PUT", "/contracts/c1", "b"), changing, "with_customer"),
        (("GET", "/plans", None), api, "table_of"),
        (("GET", "/document", None), api, "table_of"),
        (("GET", "/contracts", None), api, "table_of_customer"),
    ],
)
def test_what_takes_long_is_done_beside_the_event_loop(
    request_of: tuple[str, str, Any], where: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which serves the application as well."""
    threads = noted(monkeypatch, where, name)
    (response,) = answers_to(request_of)

    assert response.is_success
    assert threads
    assert threading.main_thread() not in threads


@pytest.mark.parametrize("path", ["/plans", "/document"])
def test_a_version_is_written_once_for_all_that_read_it(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that may only read makes nothing expensive; another version is another text."""
    written = noted(monkeypatch, api, "table_of")
    change = ("PUT", "/contracts/c1", "b")
    first, again, _, then = answers_to(("GET", path, None), ("GET", path, None), change, ("GET", path, None))

    assert 2 == len(written)
    assert first.content == again.content
    assert ('"1"', '"2"') == (first.headers["etag"], then.headers["etag"])


def test_one_piece_is_done_at_a_time_and_few_wait() -> None:
    """The next one is told to come again."""

    async def ask() -> tuple[int, int, Problem]:
        work, most, now, go_on = LongWork(), 0, 0, asyncio.Event()

        async def piece() -> None:
            nonlocal most, now
            now += 1
            most = max(most, now)
            await go_on.wait()
            now -= 1

        tasks = [asyncio.create_task(work.alone(piece)) for _ in range(WAITING_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(Problem) as refused:
            await work.alone(piece)
        go_on.set()
        await asyncio.gather(*tasks)
        await work.alone(piece)
        return most, now, refused.value

    most, left, problem = asyncio.run(ask())

    assert (1, 0) == (most, left)
    assert (503, str(RETRY_AFTER_S)) == (problem.status, problem.fields["Retry-After"])


def test_what_goes_on_holding_is_worked_out_once_for_customers_that_change_plans_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And not for each of the ninety thousand that a document can have."""
    worked_out = noted(monkeypatch, changing, "formers_of")
    before, after = checked(SAID), checked(SAID | {"customers": {f"c{number}": "b" for number in range(300)}})

    assert 300 == len(with_document(before, after, now_s=0.0).customers)
    assert 1 == len(worked_out)


def test_a_limit_string_is_read_once_for_all_limits_that_say_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing a document reads it to see what it says beside the text."""
    document = checked(SAID)
    writing._limit_of.cache_clear()
    read = noted(monkeypatch, Limit, "parse")
    said = table_of(document)["plans"]

    assert ["5/1s", "7/1s"] == [said["a"]["limits"]["x99"], said["b"]["limits"]["x0"]]
    assert 2 == len(read)


def test_a_table_of_too_many_costs_is_refused_without_a_look_at_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two megabytes of them took seconds."""
    looks = noted(monkeypatch, documents, "_makes_sense")
    costs = {f"k{number}": 1 for number in range(KINDS_MAX + 1)}
    said = {"plans": {"a": {"limits": {"x": {"limit": "5/s", "costs": costs}}}}, "unknown": "a"}
    with pytest.raises(InvalidContracts, match="has more than 1000 entries") as refused:
        checked(json.loads(json.dumps(said)))

    assert "costs" == refused.value.path[-1]
    assert [] == looks
