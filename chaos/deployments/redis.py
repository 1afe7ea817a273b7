"""Redis servers that can be killed, stopped, filled up and cut off, and whose clock can be wrong."""

from __future__ import annotations

import shutil
import signal
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from chaos.bound.witness import Witness
from chaos.deployments.deployment import RIVAL, USER, Guard, redis_users
from chaos.fleet.child import Child
from chaos.names import REPORTED, SECRET
from reconverge_sync.redis.hub import RedisHub
from tests.support.certificates import tls_options
from tests.support.servers import free_port, redis_binary, wait_until

SHIFT_SOURCE: Final = Path(__file__).parent / "shift.c"
ASK_S: Final = 1.0
ADMIN_S: Final = 2.0
"""The longest time, in seconds, in which a server that was not stopped answers the program itself."""


class Redis:
    """A Redis with a password. Faults do not cut the unix socket of this program; nodes use a port of an address."""

    shards = 1

    def __init__(
        self,
        *,
        address: str = "127.0.0.1",
        prefix: Sequence[str] = (),
        shifted: bool = False,
        guard: Guard | None = None,
        witness: Witness | None = None,
    ) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="reconverge-chaos-"))
        self._plain_port = free_port()
        self.port = self._plain_port if guard is None else free_port()
        self._guard = guard
        self._witness = witness
        self.socket = self.directory / "redis.sock"
        self.admin = self._client(ADMIN_S)
        self._address = address
        self._prefix = list(prefix)
        self._clock = self.directory / "clock"
        self._shift = self._built_shift() if shifted else None
        self._child: Child | None = None

    @property
    def look_url(self) -> str:
        return f"redis+unix://:{SECRET}@{self.socket}"

    def url(self, host: str, port: int) -> str:
        return self._url(USER, host, port)

    def rivals_url(self, host: str, port: int) -> str:
        return self._url(RIVAL, host, port)

    def _url(self, user: str, host: str, port: int) -> str:
        if self._guard is None:
            return f"redis://:{SECRET}@{host}:{port}/0"
        return f"rediss://{user}:{SECRET}@{host}:{port}/0?{self._guard.query()}"

    def reported(self, name: str) -> int:
        with self._client(ASK_S) as client:  # a connection of its own, as faults rely on the other one
            values: list[Any] = client.hvals(f"{name}:{REPORTED}")
        return sum(map(int, values))

    def _client(self, timeout_s: float) -> redis.Redis:
        return redis.Redis(
            unix_socket_path=str(self.socket),
            password=SECRET,
            socket_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
        )

    @property
    def alive(self) -> bool:
        """Returns whether the server's process runs."""
        return self._child is not None and self._child.alive

    def start(self) -> None:
        """Starts the server, empty, and waits until it answers."""
        self.spawn()
        self.await_answer()

    def spawn(self) -> None:
        """Starts the server, empty."""
        # Without a port, a server can be reached by its socket alone: nothing happens before a witness listens.
        port, tls_port = (self._plain_port, self.port) if self._witness is None else (0, 0)
        command = [redis_binary(), "--port", str(port), "--bind", self._address, "--protected-mode", "no"]
        command += ["--unixsocket", str(self.socket), "--dir", str(self.directory), "--save", "", "--appendonly", "no"]
        command += ["--requirepass", SECRET, "--masterauth", SECRET, "--repl-diskless-sync-delay", "0"]
        if self._guard is not None:
            command += ["--tls-port", str(tls_port), *tls_options(self._guard.certificates)]
            command += redis_users(RedisHub.__doc__ or "")
        environment = {}
        if self._shift is not None:
            environment = {"LD_PRELOAD": str(self._shift), "CHAOS_CLOCK_AHEAD": str(self._clock)}
        log = self.directory / "redis.log"
        self._child = Child(command, prefix=self._prefix, log=log, environment=environment)

    def await_answer(self) -> None:
        """Waits until the server answers. Raises RuntimeError with its last words if it ends instead."""
        wait_until(lambda: self._answers() or not self.alive, f"redis-server on port {self.port}")
        if not self.alive:
            raise RuntimeError(f"redis-server ended at once: {(self.directory / 'redis.log').read_text()[-500:]}")
        if self._witness is not None:
            self._witness.listen(self.socket, password=SECRET)
            self.admin.config_set("port", self._plain_port)
            if self._guard is not None:
                self.admin.config_set("tls-port", self.port)

    def kill(self) -> None:
        """Ends the server as a crash does; its data are lost."""
        if self._child is not None:
            self._child.kill()
        self.admin.connection_pool.disconnect()

    def pause(self) -> None:
        """Makes the server hang: connections stay open, but it answers nothing."""
        assert self._child is not None
        self._child.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Makes the server go on."""
        assert self._child is not None
        self._child.signal(signal.SIGCONT)

    def set_clock_ahead(self, seconds: int) -> None:
        """Sets how far the server's wall clock is ahead of the machine's."""
        with self._clock.open("r+b") as file:
            file.write(struct.pack("q", seconds))

    def stop(self) -> None:
        """Ends the server, and removes its directory."""
        self.kill()
        self.admin.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _answers(self) -> bool:
        try:
            return bool(self.admin.ping())
        except redis.RedisError:
            return False

    def _built_shift(self) -> Path:
        self._clock.write_bytes(struct.pack("q", 0))
        library = self.directory / "shift.so"
        subprocess.run(
            ["gcc", "-O2", "-shared", "-fPIC", "-o", str(library), str(SHIFT_SOURCE)],  # noqa: S607  # found on the path
            check=True,
            capture_output=True,
        )
        return library
