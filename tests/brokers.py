"""Starting real brokers of MQTT for tests: each on its own port, in its own directory, and gone with the test."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.servers import accepts, free_port, wait_until


class Mosquitto:
    """A mosquitto that listens on a loopback port, with these lines in its configuration besides."""

    def __init__(self, *lines: str, port: int | None = None) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="reconverge-test-"))
        self.port = port or free_port()
        self._lines = lines or ("allow_anonymous true",)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where a hub finds it."""
        return f"mqtt://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Start it, and wait until it accepts connections. Raises RuntimeError with what it says if it ends instead."""
        config, said = self.directory / "mosquitto.conf", self.directory / "mosquitto.log"
        # As root it would become another user, who may not read the test's files.
        user = "user root" if os.geteuid() == 0 else ""
        lines = [user, "persistence false", "log_type error", f"listener {self.port} 127.0.0.1", *self._lines]
        config.write_text("\n".join([*lines, ""]))
        with said.open("wb") as log:
            self._process = process = subprocess.Popen(
                [mosquitto_binary(), "-c", str(config)],
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent,  # noqa: PLW1509  # it calls into C alone
            )
        wait_until(lambda: process.poll() is not None or accepts(self.port), f"mosquitto on port {self.port}")
        if process.returncode is not None:
            raise RuntimeError(f"mosquitto ended at once: {said.read_text(errors='replace')}")
        return self

    def kill(self) -> None:
        """End it as a crash does; it remembers nothing."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """End it and remove its directory."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def pause(self) -> None:
        """Let it hang: connections stay open, nothing is passed on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def mosquitto_binary() -> str:
    """The system's mosquitto. Raises FileNotFoundError."""
    # Debian puts it where not every user looks.
    found = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise FileNotFoundError("no mosquitto: install Debian's package mosquitto")
    return found


def _die_with_parent() -> None:
    """Have the kernel kill this child when its parent goes, however that happens (PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
