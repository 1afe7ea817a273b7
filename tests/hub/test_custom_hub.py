"""Goal: whoever wants another hub can add one by installing a package.

Method: the example is installed with pip into a directory of its own, without a network; what is tried is what was
installed: the promises, as its own tests try them, and agents that find it by the scheme of a URL.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import unittest
from collections.abc import Callable, Iterator
from importlib import import_module
from io import StringIO
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from reconverge.clock import ManualClock
from reconverge.hub.json_codec import read_batch
from reconverge.hub.report import Batch
from tests.support.servers import free_port, wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_hub"
RUN_S_MAX = 300.0
LINES_MAX = 149
"""A model that is longer is not read."""

AGENTS = """
import sys
from reconverge import Agent
from tests.support.waiting import eventually

url = sys.argv[1]
with Agent(url, policy="strict", sync_interval=0.02) as one, Agent(url, policy="strict", sync_interval=0.02) as two:
    limiters = [agent.limit("login", "100/hour", algorithm="fixed-window") for agent in (one, two)]
    admitted = [0, 0]

    def all_is_used() -> bool:
        for number, limiter in enumerate(limiters):
            admitted[number] += limiter.allow("ada")
        return sum(admitted) >= 100 and all(limiter.usage("ada").total == 100 for limiter in limiters)

    eventually(all_is_used, "both know of all 100")
    print(sum(admitted), min(admitted) > 0, one.stats().exchanges[0].failures)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip has put the package, from a copy of its sources: building leaves things beside them."""
    target = tmp_path_factory.mktemp("installed")
    sources = target / "sources"
    shutil.copytree(EXAMPLE, sources, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    quiet = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--no-index"]
    command = [sys.executable, "-m", "pip", "install", *quiet, "--target", str(target / "site"), str(sources)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_S_MAX)
    assert 0 == ran.returncode, ran.stderr
    return target / "site"


def run(installed: Path, *arguments: str, directory: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python where the package is installed."""
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_S_MAX,
        env=environment(installed),
        cwd=directory,
    )


def environment(installed: Path) -> dict[str, str]:
    """Returns an environment in which a process sees the package, and all that this one sees."""
    seen = [str(installed), str(EXAMPLE.parent.parent), *filter(None, sys.path)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(seen))}


@pytest.fixture
def jsonline(installed: Path) -> Iterator[str]:
    """The URL of its server, as its README has it started."""
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "reconverge_jsonline", str(port)], env=environment(installed), cwd=installed
    )
    try:
        answers = f"import socket; socket.create_connection(('127.0.0.1', {port})).close()"
        wait_until(lambda: 0 == run(installed, "-c", answers).returncode, "the server of the example", 60.0)
        yield f"jsonline://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


@pytest.mark.slow
def test_the_installed_hub_keeps_every_promise(installed: Path) -> None:
    """Its own conformance test passes as it would at its author's, with nothing skipped."""
    shutil.copy(EXAMPLE / "test_conformance.py", installed)
    ran = run(installed, "-W", "error", "-m", "unittest", "test_conformance", directory=installed)

    assert 0 == ran.returncode, ran.stderr
    assert "OK" == ran.stderr.rstrip().splitlines()[-1]


@pytest.mark.slow
def test_agents_find_the_installed_hub_by_its_scheme(installed: Path, jsonline: str) -> None:
    """Two of them admit exactly what they may together, and each a part of it."""
    ran = run(installed, "-W", "error", "-c", AGENTS, jsonline)

    assert (0, "", "100 True {}") == (ran.returncode, ran.stderr, ran.stdout.strip())


def test_the_example_is_short() -> None:
    """All of it but what is written about it."""
    files = [path for path in EXAMPLE.iterdir() if path.suffix in (".py", ".toml")]

    assert sum(path.read_text().count("\n") for path in files) <= LINES_MAX


Change = Callable[[Batch], Batch]


def _keys_in_small_letters(batch: Batch) -> Batch:
    return batch._replace(cells=tuple(cell._replace(key=cell.key.lower()) for cell in batch.cells))


def _always_news(batch: Batch) -> Batch:
    return batch._replace(sequence=next(_numbers))


def _for_ever(batch: Batch) -> Batch:
    return batch._replace(lease_us=50 * 86_400_000_000)  # the most that hubs accept is sixty days


def _everybody_alike(batch: Batch) -> Batch:
    return batch._replace(node="node.0", sequence=next(_numbers))


_numbers = count(1)


@pytest.mark.parametrize(
    ("change", "claim"),
    [
        (_keys_in_small_letters, "test_hostile_keys_do_not_collide"),
        (_always_news, "test_a_batch_that_comes_twice_counts_once"),
        (_for_ever, "test_a_lease_that_is_over_is_not_renewed"),
        (_everybody_alike, "test_all_nodes_counts_are_summed"),
    ],
)
def test_a_wrong_one_is_found_out(installed: Path, monkeypatch: pytest.MonkeyPatch, change: Change, claim: str) -> None:
    """The same tests fail if its server makes of a batch what was not said."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.syspath_prepend(str(installed))
    server: Any = import_module("reconverge_jsonline")
    tests: Any = import_module("test_conformance")

    passed = unittest.TextTestRunner(StringIO()).run(tests.TestJsonLineHub(claim))
    monkeypatch.setattr(server, "read_batch", lambda value: change(read_batch(value)))
    failed = unittest.TextTestRunner(StringIO()).run(tests.TestJsonLineHub(claim))

    assert passed.wasSuccessful()
    assert [1, 0] == [len(failed.failures), len(failed.errors)]


@pytest.mark.parametrize(
    "sent", [b"\n", b"{}\n", b"[" * 100_000 + b"\n", b'{"namespace": "a", "batch": []}\n', b"\xff\n", b""]
)
def test_whoever_sends_nonsense_gets_no_answer(installed: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    """And the server goes on, as it was."""
    monkeypatch.syspath_prepend(str(installed))
    module: Any = import_module("reconverge_jsonline")
    with module.Server(("127.0.0.1", 0), ManualClock(0.0)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            with socket.create_connection(server.server_address) as connection:
                connection.sendall(sent)
                connection.shutdown(socket.SHUT_WR)
                heard = connection.recv(100)
        finally:
            server.shutdown()
            thread.join()

        assert (b"", {}) == (heard, server.rules)
