"""Goal: the examples do what they say.

Method: each runs as a reader would run it, as a process of its own, and what it prints is read; only the directory of
its private redis-server is the test's.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from reconverge.agent.environment import HUB, NO_HUB
from tests.support.servers import RedisServer, free_port

pytestmark = pytest.mark.slow  # each example runs as a program

EXAMPLES = Path(__file__).parents[2] / "examples"
RUN_S_MAX = 60.0
"""Each takes about two seconds; a machine may be busy."""


def run(example: str, directory: Path, hub: str | None = None, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run an example to its end, in `directory`; `hub` is its RECONVERGE_HUB."""
    environment = {name: value for name, value in os.environ.items() if name != "RECONVERGE_HUB"}
    if hub is not None:
        environment["RECONVERGE_HUB"] = hub
    environment["GRPC_VERBOSITY"] = "ERROR"  # gRPC's own library tells at times how a connection ended
    command = [sys.executable, str(EXAMPLES / example), *arguments]
    with TemporaryDirectory(prefix="reconverge-test-", ignore_cleanup_errors=True) as servers:
        environment["XDG_RUNTIME_DIR"] = servers
        return subprocess.run(
            command, capture_output=True, text=True, timeout=RUN_S_MAX, env=environment, cwd=directory, check=False
        )


def said_at(hub: str) -> str:
    """Returns a process's first lines on stderr: once that there is none, or nothing."""
    return "" if hub != "none" else f"{NO_HUB % HUB}\n"


def complaints(stderr: str) -> str:
    """Returns the lines on stderr, except that the hub was late and answers again, as it may on a busy machine."""
    lines = stderr.splitlines(keepends=True)
    late = re.compile(r"reconverge: the hub \S+ (is unavailable \(timeout: |answers again$)", re.MULTILINE)
    return "".join(line for line in lines if not late.match(line))


def numbers(pattern: str, text: str) -> list[int]:
    """The numbers that `pattern` finds in what an example printed."""
    found = re.search(pattern, text)
    assert found is not None, f"no {pattern!r} in {text!r}"
    return [int(number) for number in found.groups()]


def test_the_quickstart_shows_two_nodes_staying_inside_one_limit(tmp_path: Path) -> None:
    """Both nodes admit a part, together hardly less than the limit, and in no case more."""
    ran = run("quickstart.py", tmp_path)

    one, two, both = numbers(r"admitted (\d+) \+ (\d+) = (\d+) of 100\.", ran.stdout)
    assert (0, "") == (ran.returncode, ran.stderr)
    assert one + two == both
    assert min(one, two) > 0
    assert 90 <= both <= 100


@pytest.mark.parametrize("hub", ["embedded", "redis"])
def test_the_asyncio_service_refuses_whoever_asks_too_often(
    hub: str, tmp_path: Path, redis_server: RedisServer
) -> None:
    """Ada and Bob use up their hour and are answered 429 from then on; Eve is so only while her node is in doubt.

    On a busy machine the hub's first answer may take longer than Eve does.
    """
    ran = run("asyncio_service.py", tmp_path, None if hub == "embedded" else redis_server.url)

    admitted, refused = numbers(r"ada asked 250 times: (\d+) times 200, (\d+) times 429", ran.stdout)
    assert (0, "") == (ran.returncode, ran.stderr)
    assert admitted + refused == 250
    assert 90 <= admitted <= 100
    eve, refused, in_doubt = numbers(
        r"eve asked 25 times: (\d+) times 200, (\d+) times 429, (\d+) of them in doubt", ran.stdout
    )
    assert (25, in_doubt) == (eve + refused, refused)
    (answers,) = numbers(r"the hub answered (\d+) times meanwhile, failures: none", ran.stdout)
    assert answers > 1


def test_the_asyncio_service_goes_on_without_its_hub(tmp_path: Path) -> None:
    """Nobody listens where the hub should be: all requests are answered all the same, and one warning says why."""
    ran = run("asyncio_service.py", tmp_path, f"redis://127.0.0.1:{free_port()}/0")

    assert 0 == ran.returncode
    assert [100, 150] == numbers(r"ada asked 250 times: (\d+) times 200, (\d+) times 429", ran.stdout)
    assert "the hub answered 0 times meanwhile, failures: {'refused'" in ran.stdout
    assert 1 == ran.stderr.count("is unavailable")


@pytest.mark.parametrize("hub", ["none", "redis"])
def test_the_threads_charge_exactly_what_they_took(hub: str, tmp_path: Path, redis_server: RedisServer) -> None:
    """The truth is settled to the token, on as many threads as there are, and the budget runs out before the trace."""
    ran = run("threads.py", tmp_path, None if hub == "none" else redis_server.url)

    (done,) = numbers(r"(\d+) of 2000 requests were admitted", ran.stdout)
    took, charged, limit = numbers(r"they took (\d+) tokens, and (\d+) of (\d+) are charged", ran.stdout)
    assert (0, said_at(hub)) == (ran.returncode, ran.stderr)
    assert 0 < done < 2000
    assert took == charged
    assert took < 1.1 * limit
    if hub == "none":  # otherwise threads that outrun the exchanges may be refused early
        assert took > 0.9 * limit


@pytest.mark.parametrize("hub", ["embedded", "redis"])
def test_four_workers_charge_their_budget_of_tokens_exactly(
    hub: str, tmp_path: Path, redis_server: RedisServer
) -> None:
    """The workers' use of the recording is the hub's count, to the token; nothing is lost or doubled."""
    ran = run("llm_tokens.py", tmp_path, None if hub == "embedded" else redis_server.url, "3")

    counted, used = numbers(r"the hub counts (\d+) tokens, and (\d+) were used", ran.stdout)
    assert (0, "") == (ran.returncode, complaints(ran.stderr))
    assert counted == used
    assert used > 100_000
    assert (tmp_path / "llm_tokens.png").stat().st_size > 10_000


@pytest.mark.parametrize(("hub", "peak_max"), [("embedded", 4), ("redis", 4), ("memory", 8)])
def test_the_example_in_flight_renders_all_reports(
    hub: str, peak_max: int, tmp_path: Path, redis_server: RedisServer
) -> None:
    """Never more than four at once on both nodes together, or four on each where they have no hub; none is refused."""
    hubs = {"embedded": None, "redis": redis_server.url, "memory": "memory://"}
    ran = run("in_flight.py", tmp_path, hubs[hub])

    assert (0, "") == (ran.returncode, ran.stderr)
    one, two, refused = numbers(r"(\d+) \+ (\d+) reports, (\d+) refused", ran.stdout)
    assert (40, 0) == (one + two, refused)
    (peak,) = numbers(r"at most (\d+) of 4 at once", ran.stdout)
    assert 1 < peak <= peak_max
    assert [0] == numbers(r"(\d+) slots in use in the end", ran.stdout)


def test_the_load_shedding_example_serves_what_is_critical(tmp_path: Path) -> None:
    """All 42 critical requests are served, and of 160 of test traffic some are refused, by the layer that is named."""
    ran = run("load_shedding.py", tmp_path)

    (critical,) = numbers(r"critical 200: (\d+)", ran.stdout)
    served = re.search(r"test 200: (\d+)", ran.stdout)
    (refused,) = numbers(r"test 503: (\d+)", ran.stdout)
    assert (0, "") == (ran.returncode, ran.stderr)
    assert 42 == critical
    assert 160 == refused + (int(served.group(1)) if served else 0)
    assert "refused by concurrency - come again in 1 s" in ran.stdout
    assert 'qu="concurrent-requests"' in ran.stdout


@pytest.mark.parametrize("hub", ["none", "redis"])
def test_the_fastapi_application_limits_by_plan_and_by_tokens(
    hub: str, tmp_path: Path, redis_server: RedisServer
) -> None:
    """Ada's plan suffices, Bob's does not, and chats are charged for what they cost instead of what was expected."""
    ran = run("fastapi_app.py", tmp_path, None if hub == "none" else redis_server.url)

    ada, bob, chats = ([word for word in line.split() if word in ("200", "429")] for line in ran.stdout.splitlines())
    assert (0, said_at(hub)) == (ran.returncode, ran.stderr)
    assert ["200"] * 20 == ada
    assert 1 <= bob.count("200") <= 5
    if hub == "none":  # in a fleet, what is given back may be needed before the hub has dealt it out
        assert ["200"] * 5 + ["429"] * 15 == bob
        assert ["200"] * 12 + ["429"] * 8 == chats


def test_the_customer_portal_tells_why_a_customer_is_refused(tmp_path: Path) -> None:
    """And when it can go on, in a sentence; once the operator has moved it to another plan, it goes on at once.

    In the end each is billed for what it was charged, before and after.
    """
    ran = run("customer_portal.py", tmp_path)

    acme, why, globex, room, operator, moved, after, *billed = ran.stdout.splitlines()
    assert (0, said_at("none")) == (ran.returncode, ran.stderr)
    assert ["acme 200 200 200 200 200 429 429 429", "globex" + 8 * " 200"] == [acme, globex]
    assert why.startswith("acme sees: acme may send 5 requests a minute and has sent 5; it can go on in ")
    assert room.endswith("it can go on now.")
    assert "the operator sees: plan free - refused by minute" == operator
    assert "acme is moved to pro: 200 {'version': 2}" == moved
    assert "acme" + 8 * " 200" == after
    assert [
        "acme is billed for: {'daily': '13 used, 3 refused', 'minute': '13 used, 3 refused'}",
        "globex is billed for: {'daily': '8 used, 0 refused', 'minute': '8 used, 0 refused'}",
    ] == billed


@pytest.mark.parametrize("hub", ["none", "redis"])
def test_the_flask_application_limits_views_and_blueprints(hub: str, tmp_path: Path, redis_server: RedisServer) -> None:
    """Each has its quota, what is exempt has none, and of logins only those that fail count."""
    ran = run("flask_app.py", tmp_path, None if hub == "none" else redis_server.url)

    home, items, health, logins = ran.stdout.splitlines()
    assert (0, said_at(hub)) == (ran.returncode, ran.stderr)
    assert "/health: {200: 30}" == health
    assert "logins: 200 401 200" == logins[:19]
    if hub == "none":
        assert ("/: {200: 20, 429: 10}", "/api/items: {200: 5, 429: 25}") == (home, items)
        assert "logins: 200 401 200 401 200 401 429 429 429 429" == logins


@pytest.mark.parametrize("hub", ["none", "redis"])
def test_the_django_project_does_what_its_settings_say(hub: str, tmp_path: Path, redis_server: RedisServer) -> None:
    """All requests, one view and logins that fail have a quota each; what was streamed is charged to the word."""
    ran = run("django_app", tmp_path, None if hub == "none" else redis_server.url)

    home, _, search, fields, logins, chats = ran.stdout.splitlines()
    assert (0, said_at(hub)) == (ran.returncode, ran.stderr)
    assert '    RateLimit: "search";r=4;' == fields[:28]
    assert chats.startswith("chats: 100 words in 10 answers")
    if hub == "none":
        assert ("/: {200: 20, 429: 10}", "/search/: {200: 5, 429: 25}") == (home, search)
        assert "logins: 200 401 200 401 200 401 429 429 429 429" == logins


@pytest.mark.parametrize("hub", ["none", "redis"])
def test_the_grpc_service_tells_when_to_come_again(hub: str, tmp_path: Path, redis_server: RedisServer) -> None:
    """The third stream in a minute is refused, with the seconds to wait; other calls go on."""
    ran = run("grpc_service.py", tmp_path, None if hub == "none" else redis_server.url)

    assert (0, said_at(hub)) == (ran.returncode, ran.stderr)
    assert ran.stdout.startswith('hello, ada; ratelimit: "requests";r=19;')
    assert 2 == ran.stdout.count("counted: 0 1 2 3 4")
    message, told = numbers(r"RESOURCE_EXHAUSTED: .* Try again in (\d+) s\. retry-after: (\d+)", ran.stdout)
    assert message == told > 0


@pytest.mark.parametrize("hub", ["embedded", "redis"])
def test_flask_limiter_decides_from_memory(hub: str, tmp_path: Path, redis_server: RedisServer) -> None:
    """Two processes admit a part each, together hardly less than the limit, and in no case more."""
    ran = run("flask_limiter_drop_in.py", tmp_path, None if hub == "embedded" else redis_server.url)

    one, two, both = numbers(r"admitted (\d+) \+ (\d+) = (\d+) of 100\.", ran.stdout)
    assert (0, "") == (ran.returncode, ran.stderr)
    assert one + two == both
    assert 90 <= both <= 100
    assert [600 - both] == numbers(r"(\d+) requests were answered 429", ran.stdout)


def test_the_billing_export_bills_what_was_charged(tmp_path: Path) -> None:
    """Three hours of two nodes, each of whose events has an id of its own."""
    ran = run("billing_export.py", tmp_path)

    lines = ran.stdout.splitlines()
    events = [json.loads(line) for line in lines if line.startswith("{")]
    assert (0, "") == (ran.returncode, ran.stderr)
    assert len(events) == len({event["id"] for event in events})
    assert ["billed: acme requests 1600", "billed: zeta requests 1200", "billed: zeta tokens 48000"] == [
        line for line in lines if line.startswith("billed")
    ]
    assert "this month: acme 1600 requests, 200 refused; zeta 1200 requests, 0 refused" in lines


def test_every_example_is_run_here() -> None:
    """An example that nobody runs is an example that does not work."""
    source = Path(__file__).read_text()

    assert [] == [script.name for script in EXAMPLES.glob("*.py") if f'run("{script.name}"' not in source]


def test_the_traces_are_what_their_readme_says() -> None:
    """Names, numbers of rows and columns are those of the files."""
    readme = (EXAMPLES / "data" / "README.md").read_text()
    told = {name: (int(rows), columns) for name, rows, columns in re.findall(ROW_OF_A_TRACE, readme, re.MULTILINE)}
    found: dict[str, tuple[int, str]] = {}
    for path in (EXAMPLES / "data").glob("*.csv.gz"):
        with gzip.open(path, "rt", newline="") as lines:
            header, *rows = csv.reader(lines)
        found[path.name] = (len(rows), ", ".join(f"`{column}`" for column in header))

    assert found == told


ROW_OF_A_TRACE = r"^\| `([\w.-]+)` \| (\d+) \| ([^|]+?) \|"


def test_the_workers_with_httpx_stay_inside_the_servers_quota(tmp_path: Path) -> None:
    """Four workers send 28 calls through a quota of 10 in 2 s; hardly one is held up so long that it is refused."""
    ran = run("httpx_client.py", tmp_path)

    calls, refused = numbers(r"(\d+) calls in [\d.]+ s, (\d+) of them refused", ran.stdout)
    assert (0, "") == (ran.returncode, ran.stderr)
    assert 28 == calls
    assert refused <= 1
