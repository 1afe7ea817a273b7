"""Runs a private redis-server on a loopback port, for the time of a measurement."""

from __future__ import annotations

import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Self

from redis import Redis

from reconverge_sync.embedded.supervisor import find_redis_server

START_S_MAX: Final = 60.0
"""Four workers that import a framework take long on a busy machine."""


class OwnRedis:
    """A server that stores nothing on the disk, and that can be killed, started again and paused."""

    def __init__(self) -> None:
        self.port = free_port()
        self._directory = tempfile.TemporaryDirectory(prefix="reconverge-bench-")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the server, empty, and waits until it listens."""
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", self._directory.name]
        options += ["--save", "", "--appendonly", "no"]
        self._process = subprocess.Popen([find_redis_server(), *options], stdout=subprocess.DEVNULL)
        try:
            wait_for(self.port)
        except RuntimeError:
            self.kill()
            raise

    def kill(self) -> None:
        """Ends the server as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """Makes the server hang: connections stay open, but it answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Makes the server go on after a pause."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._directory.cleanup()


@contextmanager
def redis_on_loopback() -> Iterator[int]:
    """Runs a server that stores nothing on the disk; yields its port."""
    with OwnRedis() as redis:
        yield redis.port


def free_port() -> int:
    """Returns a port on which no process listens at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(port: int) -> None:
    """Waits until a process listens on the port. Raises RuntimeError if none does in time."""
    deadline_s = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline_s:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    raise RuntimeError(f"nobody listens on port {port}")


class ServerMeter:
    """Measures the time that a server uses between two readings."""

    def __init__(self, port: int) -> None:
        self._server = Redis(port=port)
        self._spent_s = self._cpu_s()

    def spent_us(self) -> float:
        """Returns the CPU time of the whole server since the last reading, in microseconds."""
        before_s, self._spent_s = self._spent_s, self._cpu_s()
        return (self._spent_s - before_s) * 1e6

    def in_command_us(self, command: str) -> float:
        """Returns the elapsed time in one command, as `INFO commandstats` counts it, and begins to count anew."""
        stats: Any = self._server.info("commandstats")
        self._server.config_resetstat()
        return float(stats.get(f"cmdstat_{command}", {"usec": 0})["usec"])

    def _cpu_s(self) -> float:
        spent: Any = self._server.info("cpu")
        return float(spent["used_cpu_user"] + spent["used_cpu_sys"])
