"""Processes that end when this process ends."""

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
"""The longest time, in seconds, in which a process ends that was ordered to."""
POLL_S: Final = 0.01
_DIE_WITH_PARENT: Final = ("setpriv", "--pdeathsig", "KILL")
"""A command that kills the process with its parent; not a `preexec_fn`, which can hang in a process that has
threads."""


class Child:
    """A process whose output goes to a file. It is killed when the thread that started it ends, for any reason.

    `prefix` are commands that lead to the place where it runs, such as a namespace.
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
                process_group=0,  # the terminal's interrupts are for this process, which ends the others in their order
            )
        self.log = log

    @property
    def pid(self) -> int:
        """Returns the process's number."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Returns whether the process still runs."""
        return self._process.poll() is None

    @property
    def status(self) -> int | None:
        """Returns the exit status; None while the process runs."""
        return self._process.poll()

    @property
    def ear(self) -> IO[bytes]:
        """Returns the standard input of the process."""
        assert self._process.stdin is not None
        return self._process.stdin

    def signal(self, number: signal.Signals) -> None:
        """Sends the process a signal, if it still runs."""
        if self.alive:
            self._process.send_signal(number)

    def kill(self) -> None:
        """Kills the process at once, and waits until it is gone."""
        if self.alive:
            self._process.kill()
        self._process.wait()
        self._hang_up()

    def end(self, grace_s: float = GRACE_S) -> None:
        """Orders the process to end, and kills it if it does not."""
        self.signal(signal.SIGTERM)
        deadline_s = time.monotonic() + grace_s
        while self.alive and time.monotonic() < deadline_s:
            time.sleep(POLL_S)
        self.kill()

    def _hang_up(self) -> None:
        if self._process.stdin is not None and not self._process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):  # the process needs no order that did not arrive before its end
                self._process.stdin.close()
