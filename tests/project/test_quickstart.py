"""Goal: the newcomer's path works by copy and paste: a limited endpoint, a small limit exact on two workers, and so on.

Method: what the quickstart shows is run as it stands there, on a real uvicorn with two workers and a Redis of their
own; its longer commands are parsed as the command line does it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer.main

from chaos.scenarios.catalogue import scenario_of
from reconverge.cli.app import app
from tests.support.servers import RedisServer, free_port
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
QUICKSTART = (ROOT / "docs" / "start" / "quickstart.md").read_text()
SOURCES = os.pathsep.join([str(ROOT / "agent"), str(ROOT / "sync")])
ENDS_S_MAX = 30.0
ASKS_S_MAX = 120.0


def commands() -> list[str]:
    """What the reader types, line by line."""
    consoles = re.findall(r"^```console\n(.*?)^```", QUICKSTART, re.MULTILINE | re.DOTALL)
    return [line[2:] for block in consoles for line in block.splitlines() if line.startswith("$ ")]


def command(beginning: str) -> str:
    """The one that begins so."""
    (found,) = [line for line in commands() if line.startswith(beginning)]
    return found


def answers(url: str) -> bool:
    """Whether a server is there, whatever it says."""
    try:
        httpx.get(url, timeout=5)
    except httpx.HTTPError:
        return False
    return True


@pytest.fixture
def port(tmp_path: Path, own_redis: RedisServer) -> Iterator[int]:
    """Where `shop.py` is served, by the command that the page shows."""
    (program,) = re.findall(r"^```python\n(.*?)^```", QUICKSTART, re.MULTILINE | re.DOTALL)
    # A machine that is busy with other tests may take longer than the 25 ms for which a request waits by default.
    program = program.replace('"redis://localhost:6379/0", ', f'"{own_redis.url}", in_doubt="ask:5s", ')
    (tmp_path / "shop.py").write_text(program)
    number = free_port()
    shown = shlex.split(command("uvicorn").replace("8000", str(number)))
    server = subprocess.Popen(
        [sys.executable, "-m", *shown, "--log-level", "error"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": SOURCES},
        start_new_session=True,
    )
    try:
        eventually(lambda: answers(f"http://127.0.0.1:{number}/docs"), "the shop is served")
        yield number
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(ENDS_S_MAX)


@pytest.mark.slow
def test_a_small_limit_is_exact_on_two_workers(port: int) -> None:
    """The loop of the quickstart prints what the quickstart says: five are admitted, whichever worker answers."""
    loop = command("for").replace("localhost:8000", f"127.0.0.1:{port}")
    (said,) = re.findall(r"^(\d{3}(?: \d{3})+)$", QUICKSTART, re.MULTILINE)

    bash = shutil.which("bash")
    assert bash is not None
    ran = subprocess.run([bash, "-c", loop], capture_output=True, text=True, timeout=ASKS_S_MAX, check=True)

    assert said.split() == ran.stdout.split()


def test_the_command_that_tunes_is_understood() -> None:
    """With all its options."""
    name, *words = shlex.split(command("reconverge tune").removeprefix("reconverge "))
    group: Any = typer.main.get_command(app)

    with group.commands[name].make_context(name, words) as context:
        assert 2 == context.params["nodes"]


def test_the_fault_that_the_reader_is_to_try_is_a_scenario() -> None:
    """`make chaos` knows its name."""
    (arguments,) = re.findall(r"ARGS='run ([\w-]+)'", command("make chaos"))

    assert arguments == scenario_of(arguments, 1).name
