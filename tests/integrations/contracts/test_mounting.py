"""Goal: under any prefix, in any framework and behind a real server the API answers as it does alone.

Method: the same requests, with identities that proxies and frameworks like to change, to each of these.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from reconverge.integrations.contracts.api import contracts_api
from tests.support.applications.asking import converse, websocket_scope
from tests.support.applications.contracts_app import PREFIX
from tests.support.contracts import READER, TOKENS, WRITER, ApiClient, FilledBook, LocalContracts
from tests.support.programs.process import PROCESS_S_MAX, ROOT, environment
from tests.support.servers import free_port
from tests.support.waiting import eventually


def in_starlette(api: Any) -> Any:
    return Starlette(routes=[Mount(PREFIX, api)])


def in_fastapi(api: Any) -> Any:
    app = FastAPI()
    app.mount(PREFIX, api)
    return app


def twice(api: Any) -> Any:
    """Mounted in what is mounted itself."""
    return Starlette(routes=[Mount("/admin", Starlette(routes=[Mount("/contracts", api)]))])


@pytest.mark.parametrize("mounted", [in_starlette, in_fastapi, twice])
def test_under_a_prefix_all_is_as_ever(
    book: FilledBook, contracts: LocalContracts, mounted: Callable[[Any], Any]
) -> None:
    """Reading, changing, explaining, problems, and the OpenAPI document, which names the prefix."""
    client = ApiClient(mounted(contracts_api(book, tokens=TOKENS, contracts=contracts)), prefix=PREFIX)

    assert {"plan": "pro"} == client.get("/contracts/globex%2Feu").json()
    assert 201 == client.put("/contracts/a%20b%2F", "pro").status_code
    assert "a b/" == client.get("/customers/a%20b%2F/explain?user=ada").json()["customer"]
    assert 400 == client.get("/contracts/%ff").status_code
    assert "application/problem+json" == client.get("/nothing").headers["content-type"]
    assert [{"url": PREFIX}] == client.get("/openapi.json").json()["servers"]


def test_a_customer_may_be_called_like_the_prefix(book: FilledBook) -> None:
    """Only the first prefix is one."""
    client = ApiClient(in_starlette(contracts_api(book, tokens=TOKENS)), prefix=PREFIX)
    client.put(f"/contracts{PREFIX}", "pro")

    assert PREFIX[1:] in (each["identity"] for each in client.get("/contracts").json()["contracts"])


def test_websockets_are_refused(book: FilledBook) -> None:
    """The API has none."""
    sent = asyncio.run(converse(contracts_api(book, tokens=TOKENS), websocket_scope("/contracts")))

    assert ["websocket.close"] == [each["type"] for each in sent]


def _ask(port: int, method: str, path: str, body: bytes | None = None, **fields: str) -> tuple[int, bytes, str | None]:
    """The status, the body and the version of an answer, as a client of HTTP gets them."""
    connection = HTTPConnection("127.0.0.1", port, timeout=PROCESS_S_MAX)
    headers = {"Authorization": f"Bearer {WRITER}"} | {name.replace("_", "-"): each for name, each in fields.items()}
    try:
        connection.request(method, PREFIX + path, body, headers)
        response = connection.getresponse()
        return response.status, response.read(), response.getheader("ETag")
    finally:
        connection.close()


def _answers(port: int) -> bool:
    try:
        return _ask(port, "GET", "/openapi.json")[0] == 200
    except ConnectionError:
        return False


def test_behind_a_real_server_all_is_as_ever() -> None:
    """It decodes paths, counts bodies and drops those of HEAD by itself; it logs no error, and no token."""
    port = free_port()
    factory = "tests.support.applications.contracts_app:create"
    command = [sys.executable, "-m", "uvicorn", "--port", str(port), "--log-level", "info", "--factory", factory]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(), stderr=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        try:
            eventually(lambda: _answers(port), "an answer")
            put = _ask(port, "PUT", "/contracts/a%2Fb%20%C3%A9", b'"pro"', Content_Type="application/json")
            get = _ask(port, "GET", "/contracts/a%2Fb%20%C3%A9")
            head = _ask(port, "HEAD", "/contracts/a%2Fb%20%C3%A9")
            late = _ask(port, "DELETE", "/contracts/acme", If_Match='"1"')
            broken = _ask(port, "GET", "/contracts/%ff")
            without = _ask(port, "GET", "/plans", Authorization=f"Bearer {READER}x")
            large = _ask(port, "PUT", "/contracts/acme", b" " * 300_000, Content_Type="application/json")
            server.send_signal(signal.SIGTERM)
            out, complaints = server.communicate(timeout=PROCESS_S_MAX)
        finally:
            server.kill()

    assert (201, b'{"version":2}', '"2"') == put
    assert (200, b'{"plan":"pro"}', '"2"') == get
    assert (200, b"", '"2"') == head
    assert [412, 400, 401, 413] == [each[0] for each in (late, broken, without, large)]
    assert b"Traceback" not in complaints
    assert WRITER.encode() not in out + complaints
