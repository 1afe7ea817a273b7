"""Goal: the newcomer's path works by copy and paste from a fresh clone.

It leads from the README to a limited endpoint, a small limit that is exact on two workers, a fault.

Method: commands, programs and what comes out of them are taken from the pages. They run in a clone of this checkout, in
an environment of its own, beside a real Redis, with a real uvicorn of two workers. Three things are not as on a machine
of a newcomer, to save minutes: packages that the project needs are those of the environment that runs the tests;
Toxiproxy is built once; and the Redis has a port of its own.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.support.servers import RedisServer, free_port
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow  # an environment is made

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
QUICKSTART = (ROOT / "docs" / "start" / "quickstart.md").read_text()
ENVIRONMENT = ("python3 -m venv .venv", ". .venv/bin/activate")
"""The commands of the page that `clone` stands for: an environment with pip in it takes five seconds of computing."""
REDIS = "redis://localhost:6379/0"
PORT = "8000"
PATIENT = 'in_doubt="ask:5s", key_func='
"""A machine that is busy with other tests may take longer than the 25 ms for which a request waits by default."""
RUNS_S_MAX = 300.0
ENDS_S_MAX = 30.0


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a page in that language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def commands() -> dict[str, str]:
    """Returns the commands of the quickstart, line by line, and the answers on the page."""
    typed: dict[str, str] = {}
    for line in "".join(blocks(QUICKSTART, "console")).splitlines():
        if line.startswith("$ "):
            typed[line[2:]] = ""
        else:
            typed[list(typed)[-1]] += line
    return typed


def command(beginning: str) -> str:
    """The one that begins so."""
    (found,) = [line for line in commands() if line.startswith(beginning)]
    return found


class Clone:
    """A fresh clone, its environment, and what happens in it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        _ran(["git", "clone", "--quiet", str(ROOT), str(place)], place.parent)
        _bring_changes(place)
        _ran([sys.executable, "-m", "venv", "--without-pip", ".venv"], place)
        self._binaries = place / ".venv" / "bin"
        (library,) = (place / ".venv" / "lib").glob("python*/site-packages")
        (library / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
        for program in ("pip", "uvicorn"):
            script = self._binaries / program
            script.write_text(f'#!/bin/sh\nexec "{self._binaries}/python" -m {program} "$@"\n')
            script.chmod(0o755)
        if (ROOT / ".tools").is_dir():
            (place / ".tools").symlink_to(ROOT / ".tools")

    def environment(self) -> dict[str, str]:
        """Returns the environment of a shell with `.venv` activated; pip finds all that is needed there."""
        ours = ("PYTHON", "RECONVERGE", "COV", "PIP_", "MAKE", "MFLAGS")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        return kept | {
            "PATH": os.pathsep.join([str(self._binaries), os.environ["PATH"]]),
            "VIRTUAL_ENV": str(self._binaries.parent),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_INDEX": "1",
            "PIP_NO_BUILD_ISOLATION": "false",  # which is how pip is told so
            "PIP_ROOT_USER_ACTION": "ignore",
        }

    def types(self, line: str) -> str:
        """Run a line in a shell, and return what it prints."""
        bash = shutil.which("bash")
        assert bash is not None
        return _ran([bash, "-c", line], self.place, self.environment())

    def python(self, program: str, redis: RedisServer) -> str:
        """Run a program of a page as a file, and return what it prints."""
        (self.place / "tried.py").write_text(program.replace(REDIS, redis.url))
        return self.types("python tried.py")

    @contextmanager
    def served(self, program: str, redis: RedisServer) -> Iterator[str]:
        """Save a program as `shop.py`, and serve it with the command of the page; the address at which it answers."""
        (self.place / "shop.py").write_text(program.replace(REDIS, redis.url).replace("key_func=", PATIENT))
        port = str(free_port())
        shown = shlex.split(command("uvicorn").replace(PORT, port))
        server = subprocess.Popen(
            [str(self._binaries / shown[0]), *shown[1:], "--log-level", "error"],
            cwd=self.place,
            env=self.environment(),
            start_new_session=True,
        )
        try:
            eventually(lambda: _answers(f"http://127.0.0.1:{port}/docs"), "the shop is served")
            yield f"127.0.0.1:{port}"
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(ENDS_S_MAX)


def _ran(command: list[str], place: Path, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, timeout=RUNS_S_MAX, check=False
    )
    assert 0 == done.returncode, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _bring_changes(place: Path) -> None:
    """Copies uncommitted changes: files that differ from the last commit, and new ones."""
    for what in (["diff", "--name-only", "-z", "HEAD"], ["ls-files", "-z", "--others", "--exclude-standard"]):
        for name in filter(None, _ran(["git", *what], ROOT).split("\0")):
            if not (ROOT / name).is_file():
                (place / name).unlink(missing_ok=True)
                continue
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, place / name)


def _answers(url: str) -> bool:
    """Whether a server is there, whatever it says."""
    try:
        httpx.get(url, timeout=5)
    except httpx.HTTPError:
        return False
    return True


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A clone in which the line of the quickstart that installs has been run; that of the README installs less."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("this is no checkout of git, so there is nothing to clone")
    fresh = Clone(tmp_path_factory.mktemp("newcomer") / "reconverge")
    fresh.types(command("pip install"))
    return fresh


def test_the_six_lines_of_the_readme_welcome_ada(clone: Clone, redis_server: RedisServer) -> None:
    """The first program of the README runs as it stands there, in what was installed from the clone."""
    six, *_ = blocks(README, "python")

    assert "welcome\n" == clone.python(six, redis_server)
    assert str(clone.place / ".venv") in clone.types(
        "cd / && python -c 'import reconverge; print(reconverge.__file__)'"
    )


def test_a_small_limit_is_exact_on_two_workers(clone: Clone, redis_server: RedisServer) -> None:
    """The program of the quickstart admits what the page promises, on both workers together."""
    (program,) = blocks(QUICKSTART, "python")
    ((loop, said),) = [(line, answer) for line, answer in commands().items() if line.startswith("for ")]

    with clone.served(program, redis_server) as address:
        answers = clone.types(loop.replace(f"localhost:{PORT}", address)).split()

    assert 5 == said.split().count("200")
    assert said.split() == answers


def test_a_refusal_tells_what_the_page_says(clone: Clone, redis_server: RedisServer) -> None:
    """The second command for `curl` shows 429 with the three fields that the page names."""
    loop, *_ = [line for line in commands() if line.startswith("for ")]
    with clone.served(blocks(QUICKSTART, "python")[0], redis_server) as address:
        clone.types(loop.replace(f"localhost:{PORT}", address))
        told = clone.types(command("curl").replace(f"localhost:{PORT}", address)).lower()
    (named,) = re.findall(r"^The refusal has the fields (.*?), and problem", QUICKSTART, re.MULTILINE)

    assert " 429 " in told.splitlines()[0]
    assert ["ratelimit", "ratelimit-policy", "retry-after"] == [name.lower() for name in re.findall(r"`(.*?)`", named)]
    assert [] == [name for name in re.findall(r"`(.*?)`", named.lower()) if f"\n{name}: " not in told]
    assert "application/problem+json" in told


def test_the_fault_is_survived(clone: Clone) -> None:
    """The scenario of the page ends as the page says: its promises are kept."""
    (name, verdict) = re.findall(
        r"last\s+line\s+begins with `(\S+)`, and says that the promises were `(\w+)`", QUICKSTART
    )[0]
    (clone.place / ".venv" / ".with-chaos").touch()  # what `make chaos` installs is there

    *_, last = clone.types(command("make chaos")).splitlines()

    assert [name, f"{verdict}:"] == last.split()[:2]


def test_the_page_has_no_command_that_is_not_run_here() -> None:
    """Each command of the quickstart is run, but for the two that make the environment."""
    beginnings = ("pip install", "uvicorn", "for ", "curl", "make chaos")

    assert set(ENVIRONMENT) == {line for line in commands() if not line.startswith(beginnings)}
