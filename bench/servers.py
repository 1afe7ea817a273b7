"""A private redis-server on a loopback port, for as long as something is measured."""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from redis import Redis

from reconverge_sync.binary import find_redis_server

START_S_MAX: Final = 10.0


@contextmanager
def redis_on_loopback() -> Iterator[int]:
    """A server that keeps nothing; gives its port."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="reconverge-bench-") as directory:
        options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", directory, "--save", "", "--appendonly", "no"]
        process = subprocess.Popen([find_redis_server(), *options], stdout=subprocess.DEVNULL)
        try:
            wait_for(port)
            yield port
        finally:
            process.kill()
            process.wait()


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(port: int) -> None:
    """Until somebody listens. Raises RuntimeError if nobody does."""
    deadline_s = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline_s:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    raise RuntimeError(f"nobody listens on port {port}")


class ServerMeter:
    """Reads what a server has spent since it was last read."""

    def __init__(self, port: int) -> None:
        self._server = Redis(port=port)
        self._spent_s = self._cpu_s()

    def spent_us(self) -> float:
        """CPU time of the whole server."""
        before_s, self._spent_s = self._spent_s, self._cpu_s()
        return (self._spent_s - before_s) * 1e6

    def in_command_us(self, command: str) -> float:
        """Elapsed time in one command, as `INFO commandstats` counts it; begins to count anew."""
        stats: Any = self._server.info("commandstats")
        self._server.config_resetstat()
        return float(stats.get(f"cmdstat_{command}", {"usec": 0})["usec"])

    def _cpu_s(self) -> float:
        spent: Any = self._server.info("cpu")
        return float(spent["used_cpu_user"] + spent["used_cpu_sys"])
