"""Goal: `reconverge console` shows a fleet of processes at a real Redis, and says what it cannot do.

Method: processes that limit, the command in one of its own, and the requests that a browser sends; some are killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest

from tests.support.console import READS, TOKENS
from tests.support.programs.process import PROCESS_S_MAX, ROOT
from tests.support.servers import RedisServer, free_port
from tests.support.waiting import eventually

RECORDING = str(ROOT / "examples" / "data" / "access-2015.csv.gz")
LINES = "\n".join(f"{role}: {token}, {role}" for token, role in TOKENS.items())


def started(*command: str, **variables: str) -> subprocess.Popen[str]:
    """A process that ends with its test."""
    return subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env=os.environ | variables,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@contextmanager
def running(*command: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """The same, which is killed in the end."""
    process = started(*command, **variables)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=PROCESS_S_MAX)


def state(url: str) -> Any:
    """The fleet as the console shows it; None while it does not answer."""
    try:
        return httpx.get(f"{url}state", headers=READS, timeout=5.0).json()
    except httpx.HTTPError:
        return None


def test_a_fleet_of_processes_is_shown_from_beside_it(redis_server: RedisServer) -> None:
    """With the limit that has refused each key; a process that is killed is shown as silent. The rest goes on."""
    redis_server.command("FLUSHALL")
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    with ExitStack() as processes:
        nodes = [
            processes.enter_context(running("tests.support.programs.console_node", f"ada-{number}", redis_server.url))
            for number in range(3)
        ]
        console = processes.enter_context(
            running(
                "reconverge", "console", "--hub", redis_server.url, "--namespace", "shop", "--port", f"{port}",
                RECONVERGE_CONSOLE_TOKENS=LINES,
            )
        )  # fmt: skip

        def told() -> bool:
            view = state(url)
            return bool(view) and {f"ada-{number}" for number in range(3)} <= {
                key for each in view["denials"] for key in each["keys"]
            }

        eventually(told, "three processes to tell of denials", 60.0)
        view = state(url)
        assert {node.pid for node in nodes} == {each["pid"] for each in view["nodes"]}
        assert ("fleet", {"ready"}) == (view["scope"], {each["state"] for each in view["nodes"]})
        asked = {"limit": "login", "key": "ada-1"}
        (quota,) = httpx.get(f"{url}key", params=asked, headers=READS).json()["quotas"]
        assert (2, 2, True) == (quota["used"], quota["limit"], quota["fleetwide"])

        nodes[0].send_signal(signal.SIGKILL)
        killed = nodes[0].pid

        def silent() -> bool:
            view = state(url)
            return {"silent"} == {each["state"] for each in view["nodes"] if each["pid"] == killed}

        eventually(silent, "the killed process to be silent", 60.0)
        events = []
        with httpx.stream("GET", f"{url}stream", headers=READS, timeout=30.0) as stream:
            assert "text/event-stream" == stream.headers["content-type"].partition(";")[0]
            for line in stream.iter_lines():
                events += [json.loads(line.removeprefix("data: "))] if line.startswith("data: ") else []
                if len(events) == 3:
                    break
        assert [3, 3, 3] == [len(each["nodes"]) for each in events]
        assert events[0]["at"] < events[1]["at"] < events[2]["at"]
        console.send_signal(signal.SIGTERM)
        _, complaint = console.communicate(timeout=PROCESS_S_MAX)
        assert "Traceback" not in complaint


def test_a_token_is_made_where_none_is_named(redis_server: RedisServer) -> None:
    """And printed, once; a console is never open to all."""
    port = free_port()
    with running(
        "reconverge", "console", "--hub", redis_server.url, "--port", f"{port}", RECONVERGE_CONSOLE_TOKENS=""
    ) as console:
        assert console.stdout is not None
        assert f"http://127.0.0.1:{port}/" in console.stdout.readline()
        token = console.stdout.readline().removeprefix("token: ").strip()
        url = f"http://127.0.0.1:{port}/"

        def answers() -> bool:
            try:
                return httpx.get(f"{url}session").status_code == 401
            except httpx.HTTPError:
                return False

        eventually(answers, "the console to listen", 60.0)
        assert 200 == httpx.get(f"{url}session", headers={"authorization": f"Bearer {token}"}).status_code


@pytest.mark.parametrize(
    ("options", "variables", "problem"),
    [
        (["--hub", "memory://"], {}, "no fleet can be shown"),
        (["--hub", "redis://localhost"], {"RECONVERGE_CONSOLE_TOKENS": "nonsense"}, "name: token, role"),
        (["--hub", "redis://localhost"], {"RECONVERGE_SETTINGS_SECRET": "short"}, "RECONVERGE_SETTINGS_SECRET"),
        (["--hub", "nonsense://"], {}, "nonsense"),
        (
            ["--hub", "redis://localhost", "--customer", "client"],
            {},
            "needs --customer COLUMN, which needs --recording, too",
        ),
        (["--hub", "redis://localhost", "--recording", "none.csv", "--customer", "client"], {}, "none.csv"),
        (
            ["--hub", "redis://localhost", "--recording", RECORDING, "--customer", "client"],
            {"RECONVERGE_SETTINGS_SECRET": ""},
            "has an effect only with a settings_secret",
        ),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence(options: list[str], variables: dict[str, str], problem: str) -> None:
    """Without a traceback, and with the status of a mistake."""
    with running("reconverge", "console", *options, **variables) as console:
        _, complaint = console.communicate(timeout=PROCESS_S_MAX)

        assert 2 == console.returncode
        assert problem in complaint
        assert "Traceback" not in complaint
