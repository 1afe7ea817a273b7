"""Goal: who uses Flask-Limiter, slowapi or `limits` changes the storage URI, and nothing else.

Method: the quickstarts that those projects document, on a real Redis, in one process and in several, and with that
Redis killed. Flask-Limiter's is read from its own metadata; slowapi brings none, so here is one as it documents it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from limits import parse
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from reconverge.integrations.dropin.storage import FIXED, MOVING, SLIDING
from tests.support.applications.served import Served
from tests.support.applications.storages import limiter_at
from tests.support.servers import RedisServer, free_port
from tests.support.waiting import eventually

ITEM = parse("100/hour")
numbers = itertools.count()
"""Agents live as long as the process does, so every test has a namespace of its own."""
THEIRS = 'storage_uri="memory://"'

every_strategy = pytest.mark.parametrize("strategy", [FIXED, MOVING, SLIDING])


def storage_uri(redis: RedisServer, **settings: object) -> str:
    """A storage on that Redis. Settings that differ make another node, as another process would be."""
    settings = {"sync_interval": 0.02, "namespace": f"test-{next(numbers)}", **settings}
    return f"reconverge+{redis.url}?{'&'.join(f'{name}={value}' for name, value in settings.items())}"


def flask_quickstart(uri: str) -> str:
    text = distribution("Flask-Limiter").read_text("METADATA") or ""
    blocks = re.findall(r"^\.\. code-block:: python\n\n((?:   .*\n|\n)+)", text, re.MULTILINE)
    (program,) = (textwrap.dedent(block) for block in blocks if THEIRS in block)
    return program.replace(THEIRS, f'storage_uri="{uri}"')


def flask_client(uri: str) -> Any:
    names: dict[str, Any] = {"__name__": "quickstart"}
    exec(flask_quickstart(uri), names)  # noqa: S102  # what its users copy
    return names["app"].test_client()


def slowapi_quickstart(uri: str | None = None) -> FastAPI:
    # It reads a file `.env` of the directory that it is imported in, or made in.
    from slowapi import Limiter, _rate_limit_exceeded_handler  # noqa: PLC0415
    from slowapi.errors import RateLimitExceeded  # noqa: PLC0415
    from slowapi.util import get_remote_address  # noqa: PLC0415

    limiter = Limiter(key_func=get_remote_address, storage_uri=uri)
    app = FastAPI()
    app.state.limiter = limiter
    app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)  # type: ignore[arg-type]  # as documented

    @app.get("/home")
    @limiter.limit("5/minute")  # pyright: ignore[reportUntypedFunctionDecorator]
    async def homepage(request: Request) -> PlainTextResponse:
        return PlainTextResponse("test")

    return app


async def statuses_of(app: FastAPI, path: str, count: int) -> Counter[int]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        return Counter([(await client.get(path)).status_code for _ in range(count)])


# -------------------------------------------------------------------- quickstarts


def test_the_quickstart_of_flask_limiter_runs_on_redis(redis_server: RedisServer) -> None:
    """Its decorated route, its default limits and its exempt route do as its README says."""
    client = flask_client(storage_uri(redis_server))

    assert [200, 429, 429] == [client.get("/slow").status_code for _ in range(3)]
    assert 200 == client.get("/fast").status_code
    assert b"1 per 1 second" in client.get("/fast").data
    assert [200] * 10 == [client.get("/ping").status_code for _ in range(10)]


def test_the_quickstart_of_slowapi_runs_on_redis(redis_server: RedisServer) -> None:
    """Five requests a minute."""
    app = slowapi_quickstart(storage_uri(redis_server))

    assert {200: 5, 429: 3} == asyncio.run(statuses_of(app, "/home", 8))


def test_two_workers_of_flask_limiter_share_one_limit(redis_server: RedisServer, tmp_path: Path) -> None:
    """One request a day is one of both together; not a line of the application knows of it.

    The import that the registry needs stands in the configuration of the server.
    """
    (tmp_path / "app.py").write_text(flask_quickstart(storage_uri(redis_server, policy="strict")))
    (tmp_path / "gunicorn.conf.py").write_text("import reconverge.integrations.limits_storage\n")
    command = [
        "-m",
        "gunicorn",
        "--workers",
        "2",
        "--threads",
        "2",
        "--no-control-socket",
        "--bind",
        "127.0.0.1:{port}",
    ]
    with Served(*command, "app:app", cwd=tmp_path) as server:
        eventually(lambda: server.status("/slow") == 200, "the one request is admitted")

        assert {429: 60} == Counter(server.status("/slow") for _ in range(60))


def test_a_sitecustomize_is_enough(tmp_path: Path) -> None:
    """An application that knows nothing of it finds all schemes, in whatever process Python starts."""
    (tmp_path / "sitecustomize.py").write_text("import reconverge.integrations.limits_storage\n")
    (tmp_path / "app.py").write_text(
        "from limits import parse, storage, strategies\n"
        "for uri in ('reconverge+memory://', 'async+reconverge+memory://', 'reconverge+redis://127.0.0.1:1/0'):\n"
        "    made = storage.storage_from_string(uri)\n"
        "limiter = strategies.FixedWindowRateLimiter(storage.storage_from_string('reconverge+memory://'))\n"
        "print([limiter.hit(parse('2/hour'), 'ada') for _ in range(3)])\n"
    )
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, str(tmp_path / "app.py")]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False, timeout=60
    )

    assert ("[True, True, False]\n", 0) == (done.stdout, done.returncode), done.stderr


def test_two_workers_of_slowapi_share_one_limit(redis_server: RedisServer, tmp_path: Path) -> None:
    """Five a minute are five of both together; here the environment says where the storage is."""
    program = "from tests.integrations.dropin.test_drop_in import slowapi_quickstart\napp = slowapi_quickstart()\n"
    (tmp_path / "app.py").write_text(program)
    command = ["-m", "uvicorn", "--workers", "2", "--log-level", "error", "--port", "{port}", "app:app"]
    uri = storage_uri(redis_server, policy="strict")
    with Served(*command, cwd=tmp_path, RATELIMIT_STORAGE_URL=uri) as server:
        admitted = 0

        def all_are_admitted() -> bool:
            nonlocal admitted
            admitted += server.status("/home") == 200
            return admitted >= 5

        eventually(all_are_admitted, "five requests are admitted")
        later = Counter(server.status("/home") for _ in range(40))

    assert 5 == admitted
    assert {429: 40} == later


# -------------------------------------------------------------------- without Redis


@pytest.mark.parametrize("policy", ["strict", "balanced", "available"])
def test_flask_limiter_goes_on_when_redis_is_killed(policy: str, own_redis: RedisServer) -> None:
    """No answer but 200 and 429, before and after; what was counted goes on to count."""
    client = flask_client(storage_uri(own_redis, policy=policy))
    eventually(lambda: client.get("/slow").status_code == 200, "Redis has been asked")
    own_redis.kill()

    assert {200} == {client.get("/ping").status_code for _ in range(20)}
    assert {429} == {client.get("/slow").status_code for _ in range(20)}
    assert {client.get("/fast").status_code for _ in range(20)} <= {200, 429}


def test_slowapi_goes_on_when_redis_is_killed(own_redis: RedisServer) -> None:
    """Likewise, and the limit holds."""
    app = slowapi_quickstart(storage_uri(own_redis))
    before = asyncio.run(statuses_of(app, "/home", 3))
    own_redis.kill()
    after = asyncio.run(statuses_of(app, "/home", 20))

    assert {200: 3} == before
    assert {200: 2, 429: 18} == after


@every_strategy
def test_a_redis_that_was_never_there_is_no_error(strategy: str) -> None:
    """A limit of its own is what each process has then; only `check` says that something is missing."""
    limiter = limiter_at(f"reconverge+redis://127.0.0.1:{free_port()}/0", strategy)

    assert 100 == sum(limiter.hit(ITEM, "ada") for _ in range(150))
    assert not limiter.test(ITEM, "ada")
    assert 0 == limiter.get_window_stats(ITEM, "ada").remaining
    limiter.clear(ITEM, "ada")
    assert limiter.hit(ITEM, "ada")
    assert not limiter.storage.check()


# -------------------------------------------------------------------- several processes


@pytest.fixture
def two(redis_server: RedisServer) -> Callable[[str], tuple[Any, Any]]:
    """Two nodes with the same strategy on one Redis."""
    uri = storage_uri(redis_server)
    return lambda strategy: (
        limiter_at(f"{uri}&max_keys=1001", strategy),
        limiter_at(f"{uri}&max_keys=1002", strategy),
    )


@every_strategy
def test_counts_converge(strategy: str, two: Callable[[str], tuple[Any, Any]]) -> None:
    """The count of one is soon missing from the rest that the other tells, and both refuse in the end."""
    one, other = two(strategy)
    assert one.storage.check()
    assert other.storage.check()
    assert one.hit(ITEM, "ada", cost=30)
    # It is granted as much again and more, in advance, as it may go on like that; at its next exchange it needs less.
    eventually(lambda: _line_at_hub(one, "ada") <= 80, "one gives back what it does not need")
    assert other.hit(ITEM, "ada", cost=20)

    eventually(lambda: one.get_window_stats(ITEM, "ada").remaining == 50, "one knows of the other's")
    eventually(lambda: other.get_window_stats(ITEM, "ada").remaining == 50, "the other knows of one's")
    admitted = 50

    def is_used_up() -> bool:
        nonlocal admitted
        admitted += one.hit(ITEM, "ada")
        return bool(admitted > 90)

    eventually(is_used_up, "what is left goes to the one who asks")
    eventually(lambda: not one.hit(ITEM, "ada") and not other.hit(ITEM, "ada"), "nothing is left")


@every_strategy
def test_clearing_a_key_clears_it_everywhere(strategy: str, two: Callable[[str], tuple[Any, Any]]) -> None:
    """Also if it is done where the key was never heard of, as a command does that is run beside the workers."""
    one, other = two(strategy)
    one.hit(ITEM, "ada", cost=30)
    eventually(lambda: one.storage.book.agent.stats().exchanges[0].cells > 0, "Redis has been told")

    other.clear(ITEM, "ada")

    eventually(lambda: one.get_window_stats(ITEM, "ada").remaining == 100, "the clearing arrives")


@every_strategy
async def test_asynchronous_storages_count_with_the_others(strategy: str, redis_server: RedisServer) -> None:
    """In one process they are one node, and the loop is never held up."""
    uri = storage_uri(redis_server)
    waiting = limiter_at(f"async+{uri}", strategy)
    blocking = limiter_at(uri, strategy)

    assert await waiting.storage.check()
    assert 60 == sum([await waiting.hit(ITEM, "ada") for _ in range(60)])
    assert 40 == blocking.get_window_stats(ITEM, "ada").remaining


def test_what_is_reset_is_what_this_process_knows(two: Callable[[str], tuple[Any, Any]]) -> None:
    """And that is forgotten by all; what only others know goes on to count."""
    one, other = two(FIXED)
    one.hit(ITEM, "ada", cost=30)
    other.hit(ITEM, "eve", cost=30)

    assert 1 == one.storage.reset()
    assert 70 == other.get_window_stats(ITEM, "eve").remaining


def _line_at_hub(limiter: Any, key: str) -> float:
    """Returns the node's line on a key, once the hub has heard that it is no more; infinite until then."""
    (table,) = limiter.storage.book.agent._kernel.tables.values()  # there is no other way to see it
    cell = table.cells[f"LIMITER/{key}"]
    return cell.allowance if cell.reported_ns <= cell.shard.acked_ns else float("inf")
