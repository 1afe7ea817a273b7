"""Goal: applications behind real servers keep a limit together, and say so in every response.

Method: FastAPI under uvicorn and Flask under gunicorn, each with four workers on one Redis; clients that parse all they
are answered, wrk for as much traffic as there can be, and a Redis that is killed meanwhile.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from http.client import HTTPConnection

import pytest

from reconverge.clock import SECOND_NS, SystemClock
from tests.support.agents import net_at
from tests.support.applications.webserver import (
    FASTAPI,
    FLASK,
    KEY,
    WORKERS,
    Reply,
    WebServer,
    ask_often,
    check_fields,
    get,
    statuses,
)
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow  # four workers behind each server

CLIENTS = 16
QUOTA = 1000
ESTIMATE = 50_000
"""The expected cost of a stream."""
TARDY_MAX = 5
"""So often may one worker after the other refuse what the fleet has left."""
StartServer = Callable[..., WebServer]


@pytest.fixture
def serve(own_redis: RedisServer) -> Iterator[StartServer]:
    """Serve applications on a Redis that may be killed."""
    started: list[WebServer] = []

    def start(name: str, *, limit: str, policy: str) -> WebServer:
        started.append(WebServer(name, own_redis.url, limit=limit, policy=policy))
        started[-1].wait_for_all_workers()
        return started[-1]

    yield start
    for server in started:
        server.kill()


def pass_the_time(seconds: int) -> None:
    """Do as a client does that is told to come again, by the clock that servers go by."""
    clock = SystemClock()
    due_ns = clock.monotonic_ns() + seconds * SECOND_NS
    eventually(lambda: clock.monotonic_ns() >= due_ns, "it is time to come again")


@pytest.mark.parametrize("name", [FASTAPI, FLASK])
def test_four_workers_admit_what_the_limit_says(serve: StartServer, name: str) -> None:
    """With `strict` never more, and all of it to whoever goes on asking; every response says so in valid fields."""
    server = serve(name, limit=f"{QUOTA}/day", policy="strict")
    answers = ask_often(server.port, "ada", clients=CLIENTS, requests=2 * QUOTA // CLIENTS)

    def ask_on() -> bool:
        answers.extend(ask_often(server.port, "ada", clients=CLIENTS, requests=4))
        return statuses(answers)[200] >= QUOTA - WORKERS

    eventually(ask_on, "all of the quota is admitted")
    assert {200, 429} == set(statuses(answers))
    assert QUOTA >= statuses(answers)[200]
    for answer in answers:
        check_fields(answer.headers, refused=answer.status == 429)
    assert "" == server.stop()


@pytest.mark.parametrize("name", [FASTAPI, FLASK])
def test_as_much_traffic_as_there_can_be_stays_within_the_bound(
    serve: StartServer, name: str, own_redis: RedisServer
) -> None:
    """Driven by wrk: `balanced` admits a tenth and one request for each worker more at most, once the key is known."""
    wrk = shutil.which("wrk")
    if wrk is None:
        if os.environ.get("CI"):
            pytest.fail("wrk is not installed")
        pytest.skip("wrk is not installed")
    server = serve(name, limit=f"{QUOTA}/day", policy="balanced")
    known: set[bytes] = set()

    def greet() -> bool:
        answers = ask_often(server.port, "bob", clients=2 * WORKERS, requests=1)
        known.update(answer.body for answer in answers if answer.status == 200)
        return len(known) == WORKERS

    eventually(greet, "every worker knows the key")
    command = [wrk, "-t2", f"-c{CLIENTS}", "-d2s", "-H", f"{KEY}: bob", f"http://127.0.0.1:{server.port}/"]
    said: list[str] = []

    def drive() -> bool:
        said.append(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)
        return "Non-2xx or 3xx responses" in said[-1]

    eventually(drive, "more is asked for than there is")
    assert "" == server.stop()

    # The hub knows also of what wrk did not wait for, when its time was over.
    assert [] == [each for each in said if "Socket errors" in each]
    assert QUOTA / 2 < net_at(own_redis.url, "items", namespace="web") <= 1.1 * QUOTA + WORKERS


@pytest.mark.parametrize("name", [FASTAPI, FLASK])
def test_who_comes_again_when_he_is_told_to_is_admitted(serve: StartServer, name: str) -> None:
    """Not always by the worker that he happens to meet: one that has no line yet asks for one, and says a second."""
    server = serve(name, limit="400/4s", policy="balanced")
    for round_number in range(3):
        key = f"eve-{round_number}"
        answers = ask_often(server.port, key, clients=CLIENTS, requests=2 * 400 // CLIENTS)
        assert 429 in statuses(answers)
        answer = get(server.port, "/", key)
        for _ in range(TARDY_MAX):
            if answer.status == 200:
                break
            pass_the_time(int(answer.headers["retry-after"]))
            answer = get(server.port, "/", key)

        assert 200 == answer.status


@pytest.mark.parametrize("name", [FASTAPI, FLASK])
def test_a_redis_that_is_killed_is_no_error(serve: StartServer, name: str, own_redis: RedisServer) -> None:
    """Requests go on while it dies and after it, on known keys and on new ones, and none is answered with an error."""
    server = serve(name, limit="1000000/day", policy="balanced")
    before: list[Reply] = []

    def all_admitted() -> bool:
        before[:] = ask_often(server.port, "ada", clients=CLIENTS, requests=20)
        return {200} == set(statuses(before))

    eventually(all_admitted, "every worker knows the key, and what the hub has granted it")
    own_redis.kill()
    after = ask_often(server.port, "ada", clients=CLIENTS, requests=50)
    after += ask_often(server.port, "new", clients=CLIENTS, requests=50)

    assert {200, 429} >= set(statuses(after))
    assert statuses(after)[200] > statuses(after)[429]
    for answer in after:
        check_fields(answer.headers, refused=answer.status == 429)
    assert "Traceback" not in server.stop()


@pytest.mark.parametrize("name", [FASTAPI, FLASK])
def test_a_client_that_goes_away_is_charged_for_what_it_was_sent(
    serve: StartServer, name: str, own_redis: RedisServer
) -> None:
    """The reservation for the rest of the stream is back at the hub, though the response never ended."""
    server = serve(name, limit="100/day", policy="balanced")
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET", "/stream", headers={KEY: "ada"})
    response = connection.getresponse()
    assert b"part\n" == response.readline()
    eventually(lambda: charged(own_redis) == ESTIMATE, "the hub knows of the estimate")
    response.close()
    connection.close()

    eventually(lambda: 0 < charged(own_redis) < ESTIMATE, "it knows what was spent")


def charged(redis: RedisServer) -> int:
    return net_at(redis.url, "tokens", namespace="web")
