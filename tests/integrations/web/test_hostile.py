"""Goal: whatever a client does, it gets a clear answer, finds no way around a limit, and leaves nothing behind.

Method: FastAPI under uvicorn and Flask under gunicorn, four workers each; clients that lie, repeat themselves, send
what no client would, and go away at any moment. The workers tell what they remember of it, and what went wrong.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.applications.webserver import FASTAPI, FLASK, KEY, WORKERS, WebServer, check_fields, get
from tests.support.programs.process import PROCESS_S_MAX
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow  # four workers behind each server

CLIENTS = 8
QUOTA = 20
GONE_AT_ONCE = 200
KEYS_MAX = 3 * QUOTA
"""As many as all tests mean to use, with some to spare; each tries to make hundreds."""
TEN_MB = 10_000_000
LINGER_NOT = struct.pack("ii", 1, 0)
"""For a socket that is to end with a reset."""


@dataclass(frozen=True)
class Raw:
    status: int
    pairs: list[tuple[str, str]]

    @property
    def headers(self) -> dict[str, str]:
        """The header fields; raises if a name is there twice."""
        assert len(self.pairs) == len({name for name, _ in self.pairs}), f"said twice: {self.pairs}"
        return dict(self.pairs)


@pytest.fixture(scope="module", params=[FASTAPI, FLASK])
def server(request: pytest.FixtureRequest) -> Iterator[WebServer]:
    """An application on a Redis; whatever was done to it, it has nothing to complain of when it stops."""
    with RedisServer() as redis:
        started = WebServer(request.param, redis.url, limit=f"{QUOTA}/day", policy="strict")
        try:
            started.wait_for_all_workers()
            yield started
            assert "Traceback" not in started.stop()
        finally:
            started.kill()


def request_of(*lines: bytes, target: bytes = b"/", method: bytes = b"GET") -> bytes:
    head = [method + b" " + target + b" HTTP/1.1", b"Host: localhost", b"Connection: close", *lines]
    return b"\r\n".join([*head, b"", b""])


def ask(server: WebServer, request: bytes) -> Raw:
    """Send bytes, and read the head of what is answered."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=PROCESS_S_MAX) as connection:
        with contextlib.suppress(OSError):  # it may answer before it was sent all of it
            connection.sendall(request)
        said = b""
        while b"\r\n\r\n" not in said:
            try:
                part = connection.recv(65536)
            except ConnectionError:
                part = b""
            if not part:
                break
            said += part
    first, *lines = said.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    pairs = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    return Raw(int(first.split()[1]) if first else 0, pairs)


def ask_all(server: WebServer, requests: list[bytes]) -> list[Raw]:
    with ThreadPoolExecutor(CLIENTS) as threads:
        return list(threads.map(lambda request: ask(server, request), requests))


def admitted(answers: list[Raw]) -> int:
    """How many requests went on; raises if any was answered with neither 200 nor 429."""
    assert {200, 429} >= {answer.status for answer in answers}
    return sum(answer.status == 200 for answer in answers)


def use_up(server: WebServer, requests: list[bytes]) -> int:
    """Ask until about the quota of one key is used up, and then on; returns how many requests went on.

    With `strict` no worker goes on before it has heard of a key, and never do all of them together exceed the quota.
    """
    count = 0

    def ask_on() -> bool:
        nonlocal count
        count += admitted(ask_all(server, requests))
        return count >= QUOTA - WORKERS

    eventually(ask_on, "the quota of one client is used up")
    ask_on()
    ask_on()
    return count


def told_by_all(server: WebServer) -> list[dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}

    def look() -> bool:
        with ThreadPoolExecutor(CLIENTS) as threads:
            answers = threads.map(lambda _: json.loads(get(server.port, "/stats", "stats").body), range(4 * WORKERS))
        found.update({answer["process"]: answer for answer in answers})
        return len(found) == WORKERS

    eventually(look, "every worker tells of itself")
    return list(found.values())


def check_nothing_grew(server: WebServer) -> None:
    """Raise if any worker knows more limits than the application has, more keys than all tests have, or a failure."""
    for told in told_by_all(server):
        assert {"items", "tokens", "each"} >= set(told["limits"])
        assert KEYS_MAX >= max(told["limits"].values(), default=0), told
        assert {} == told["broken"]


def test_who_forges_where_he_comes_from_is_counted_where_he_is(server: WebServer) -> None:
    """Each request names another client, in each of the ways in which proxies do, or has an empty key, or none."""
    forged = [
        field
        for number in range(2 * QUOTA)
        for field in (
            b"X-Forwarded-For: 203.0.113.%d" % number,
            b'Forwarded: for="[2001:db8::%d]:80";proto=https' % number,
            b"X-Real-IP: 203.0.113.%d" % number,
            b"X-Forwarded-For: " + b", ".join([b"203.0.113.%d" % number] * 500),
        )
    ]

    forged += [KEY.encode() + b":", KEY.encode() + b":   ", b"Accept: */*"]

    assert QUOTA >= use_up(server, [request_of(field) for field in forged])
    check_nothing_grew(server)


def test_what_is_in_a_key_gets_into_no_response(server: WebServer) -> None:
    """Quotes, fields and characters of every kind are one key; the fields of the response stay what they are."""
    bad = [b'ada"; r=99, "x', b"a%0d%0aSet-Cookie: a=b", bytes(range(0x80, 0x100)), b"a\tb", b"~nobody", b"a|b%7C"]
    answers = ask_all(server, [request_of(KEY.encode() + b": " + key) for key in bad])

    for answer in answers:
        assert "set-cookie" not in answer.headers
        check_fields(answer.headers, refused=answer.status == 429)
    check_nothing_grew(server)


def test_a_line_break_in_a_key_is_not_taken_or_is_the_end_of_it(server: WebServer) -> None:
    """Servers answer 400 themselves, or take it for the next field; nobody fails, and no response has it."""
    bad = [b"ada\rSet-Cookie: a=b", b"ada\nSet-Cookie: a=b", b"ada\x00b", b"ada\r\n Set-Cookie: a=b"]
    answers = ask_all(server, [request_of(KEY.encode() + b": " + key) for key in bad])

    assert {200, 400, 429} >= {answer.status for answer in answers}
    assert all("set-cookie" not in dict(answer.pairs) for answer in answers)
    check_nothing_grew(server)


def test_a_key_of_ten_megabytes_is_refused_or_is_one_key(server: WebServer) -> None:
    """By these servers it is refused; what they do take costs no more memory than any other key."""
    huge = request_of(KEY.encode() + b": " + b"a" * TEN_MB)
    long = request_of(KEY.encode() + b": " + b"b" * 8000)

    assert {400, 431, 0} >= {answer.status for answer in ask_all(server, [huge, huge])}
    assert QUOTA >= use_up(server, [long] * QUOTA)
    check_nothing_grew(server)


def test_a_key_with_others_joined_to_it_is_no_key_of_its_own(server: WebServer) -> None:
    """Where the application sees ada's alone; where servers join them, no application takes it for ada's."""
    joined = [request_of(KEY.encode() + b": ada", KEY.encode() + b": %d" % number) for number in range(QUOTA)]
    answers = ask_all(server, joined * 10)

    seen = [answer.headers["x-seen"] for answer in answers if answer.status == 200]
    assert QUOTA >= seen.count(b"ada".hex())
    check_nothing_grew(server)


def test_a_thousand_paths_and_methods_are_the_routes_that_there_are(server: WebServer) -> None:
    """One limit with a key for each route, however many paths lead to it, and whatever leads nowhere."""
    key = KEY.encode() + b": ada"
    there = [request_of(key, target=b"/items/%d" % number) for number in range(1000)]
    nowhere = [request_of(key, target=b"/no/%d" % number) for number in range(100)]
    nowhere += [request_of(key, target=b"/items/1", method=b"METHOD%d" % number) for number in range(100)]
    nowhere += [request_of(key, target=b"/items/%ff%00%0a%2e%2e%2f" + b"x" * number) for number in range(100)]

    assert {200, 429} >= {answer.status for answer in ask_all(server, there)}
    eventually(lambda: admitted(ask_all(server, there[:WORKERS])) == WORKERS, "the key is known")
    assert {200, 307, 400, 404, 405, 429, 501} >= {answer.status for answer in ask_all(server, nowhere)}
    check_nothing_grew(server)


def test_who_is_gone_before_the_answer_is_charged_and_no_more(server: WebServer) -> None:
    """Hundreds of connections are reset in the middle of a request or right after it; the server goes on as before."""
    whole = request_of(KEY.encode() + b": gone")

    def go(number: int) -> None:
        connection = socket.create_connection(("127.0.0.1", server.port), timeout=PROCESS_S_MAX)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
        connection.sendall(whole if number % 2 else whole[:-2])
        connection.close()

    with ThreadPoolExecutor(CLIENTS) as threads:
        list(threads.map(go, range(GONE_AT_ONCE)))

    assert QUOTA >= admitted(ask_all(server, [whole] * 3 * QUOTA))
    assert QUOTA >= use_up(server, [request_of(KEY.encode() + b": still there")] * QUOTA)
    check_nothing_grew(server)
