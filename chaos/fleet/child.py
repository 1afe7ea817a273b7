"""Processes that are gone when we are."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

GRACE_S: Final = 5.0
"""The longest that a process which was ordered to end may take."""
POLL_S: Final = 0.01
_DIE_WITH_PARENT: Final = ("setpriv", "--pdeathsig", "KILL")
"""Not a `preexec_fn`, which can hang in a process that has threads."""


class Child:
    """A process whose words go to a file. It is killed with the thread that started it, however that one ends.

    `prefix` are commands that lead to where it runs.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        prefix: Sequence[str] = (),
        directory: Path | None = None,
        environment: Mapping[str, str] | None = None,
        listens: bool = False,
    ) -> None:
        with log.open("ab") as words:
            self._process = subprocess.Popen(
                [*prefix, *_DIE_WITH_PARENT, *command],
                stdin=subprocess.PIPE if listens else subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                cwd=directory,
                env={**os.environ, **(environment or {})},
                process_group=0,  # the terminal's interrupts are for us, who end the others in their order
            )
        self.log = log

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it is still there."""
        return self._process.poll() is None

    @property
    def status(self) -> int | None:
        """How it has ended, if it has."""
        return self._process.poll()

    @property
    def ear(self) -> IO[bytes]:
        """Where it listens."""
        assert self._process.stdin is not None
        return self._process.stdin

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it is still there."""
        if self.alive:
            self._process.send_signal(number)

    def kill(self) -> None:
        """End it at once, whatever it does, and have it gone."""
        if self.alive:
            self._process.kill()
        self._process.wait()
        self._hang_up()

    def end(self, grace_s: float = GRACE_S) -> None:
        """Tell it to end, and kill it if it does not."""
        self.signal(signal.SIGTERM)
        deadline_s = time.monotonic() + grace_s
        while self.alive and time.monotonic() < deadline_s:
            time.sleep(POLL_S)
        self.kill()

    def _hang_up(self) -> None:
        if self._process.stdin is not None and not self._process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):  # an order that did not arrive before the end is not needed
                self._process.stdin.close()
