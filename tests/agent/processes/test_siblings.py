"""Goal: a process that counts alone beside others like it logs a warning; one without others logs none.

Method: real servers and pools with an agent without a hub, started in each way, and what they have logged.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.support.programs.process import PROCESS_S_MAX, ROOT, environment
from tests.support.servers import free_port
from tests.support.waiting import eventually

APART = "decides with counts of its own"
ASGI = """
from reconverge import Agent
login = Agent("memory://").limit("login", "9/minute")
async def app(scope, receive, send):
    if scope["type"] == "http":
        login.allow("ada")
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})
"""
WSGI = """
from reconverge import Agent
login = Agent("memory://").limit("login", "9/minute")
def app(environ, start_response):
    login.allow("ada")
    start_response("204 No Content", [])
    return []
"""
POOL = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from reconverge import Agent
login = Agent("memory://").limit("login", "9/minute")
def begin(barrier):
    global met
    met = barrier
def work(_):
    met.wait(60)  # so that each worker has one piece of work
    return login.allow("ada")
if __name__ == "__main__":
    spawning = multiprocessing.get_context("spawn")
    together = {{"initializer": begin, "initargs": (spawning.Barrier({size}),)}}
    with {pool} as pool:
        print(list(pool.map(work, range({size}))))
"""


CHILDREN = """
import multiprocessing
from reconverge import Agent
login = Agent("memory://").limit("login", "9/minute")
def work():
    login.allow("ada")
if __name__ == "__main__":
    spawning = multiprocessing.get_context("spawn")
    children = [spawning.Process(target=work) for _ in range({size})]
    for child in children:
        child.start()
    for child in children:
        child.join()
"""


def _asked(port: int) -> int | None:
    connection = HTTPConnection("127.0.0.1", port, timeout=PROCESS_S_MAX)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status
    except ConnectionError:
        return None
    finally:
        connection.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("server", "options", "others"),
    [
        pytest.param("uvicorn", ["--workers", "2"], "one of 2 workers of uvicorn", id="uvicorn"),
        pytest.param("uvicorn", ["--reload"], None, id="uvicorn that reloads"),
        pytest.param("uvicorn", ["--workers", "1"], None, id="uvicorn alone"),
        pytest.param("gunicorn", ["--workers", "2"], "one of 2 workers of gunicorn", id="gunicorn"),
        pytest.param("gunicorn", ["--workers", "1"], None, id="gunicorn alone"),
    ],
)
def test_a_worker_that_counts_alone_beside_others_says_so(
    server: str, options: list[str], others: str | None, tmp_path: Path
) -> None:
    """When it decides. A server that starts its one worker anew has no others at that moment."""
    pytest.importorskip(server, reason="a server with workers")
    (tmp_path / "shop.py").write_text(ASGI if server == "uvicorn" else WSGI)
    port = free_port()
    place = ["--port", str(port)] if server == "uvicorn" else ["--bind", f"127.0.0.1:{port}", "--no-control-socket"]
    command = [sys.executable, "-m", server, *place, "--log-level", "error", *options, "shop:app"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(PYTHONPATH=_paths(tmp_path)), stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            eventually(lambda: _asked(port) == 204, "an answer")
            process.send_signal(signal.SIGTERM)
            _, logged = process.communicate(timeout=PROCESS_S_MAX)
        finally:
            process.kill()

    assert (others is not None) == (APART in logged), logged
    assert others is None or others in logged


@pytest.mark.parametrize(
    ("pool", "size", "others"),
    [
        ("spawning.Pool(2, **together)", 2, "is a worker of a multiprocessing.Pool"),
        (
            "ProcessPoolExecutor(2, mp_context=spawning, **together)",
            2,
            "is one of up to 2 workers of a ProcessPoolExecutor",
        ),
        ("spawning.Pool(1, **together)", 1, None),
        ("ProcessPoolExecutor(1, mp_context=spawning, **together)", 1, None),
    ],
)
def test_a_worker_of_a_pool_that_counts_alone_says_so(pool: str, size: int, others: str | None, tmp_path: Path) -> None:
    """A `Pool` of one worker has no others, nor has an executor."""
    done = _ran(POOL.format(pool=pool, size=size), tmp_path)

    assert f"{[True] * size}" == done.stdout.strip(), done.stderr
    assert (others is not None) == (APART in done.stderr), done.stderr
    assert others is None or others in done.stderr


@pytest.mark.parametrize(("size", "others"), [(2, "is number 2 of those that its parent has started"), (1, None)])
def test_a_child_that_counts_alone_beside_another_says_so(size: int, others: str | None, tmp_path: Path) -> None:
    """The first one may be the only one."""
    done = _ran(CHILDREN.format(size=size), tmp_path)

    assert int(others is not None) == done.stderr.count(APART), done.stderr
    assert others is None or others in done.stderr


def _ran(program: str, here: Path) -> subprocess.CompletedProcess[str]:
    (here / "program.py").write_text(program)
    return subprocess.run(
        [sys.executable, "program.py"],
        cwd=here,
        env=environment(PYTHONPATH=_paths(here)),
        capture_output=True,
        text=True,
        timeout=PROCESS_S_MAX,
        check=False,
    )


def _paths(here: Path) -> str:
    return ":".join(str(each) for each in (here, ROOT / "agent", ROOT / "sync"))
