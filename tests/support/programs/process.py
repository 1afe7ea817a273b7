"""Processes under test: each runs one of the programs beside this file, and exchanges lines with its test."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self

ROOT: Final = Path(__file__).parents[3]
PROCESS_S_MAX: Final = 60.0
"""The longest wait, in seconds: far more than any program takes, even on a busy machine; only a failing test waits so
long."""


class Process:
    """One process that runs a function of `tests.support.programs.agents`, or of another module there."""

    def __init__(self, program: str, *arguments: str, module: str = "agents") -> None:
        # From Python 3.12 on, a warning is given of each fork beside threads, and forks are what some programs test.
        command = [sys.executable, "-W", "always::ResourceWarning", "-W", "ignore:This process::__main__"]
        command += ["-m", f"tests.support.programs.{module}", program, *arguments]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.stderr = ""
        """The error output, once the process has ended."""

    def says(self) -> str:
        """Returns the next line that the process prints; empty if it has ended without one."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def go_on(self) -> None:
        """Lets a program go on that waits for a line."""
        self.hears("")

    def answers(self, line: str) -> str:
        """Sends a line. Returns the next line that the process prints."""
        self.hears(line)
        return self.says()

    def hears(self, line: str) -> None:
        """Sends a line to a program that waits for one."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def says_until(self, last: str) -> list[list[str]]:
        """Returns the words of all lines up to the one that begins with `last`."""
        lines = [self.says().split()]
        while lines[-1] and lines[-1][0] != last:
            lines.append(self.says().split())
        return lines

    def ends(self) -> tuple[int, list[str]]:
        """Waits for the end. Returns the status (negative: the signal that ended it), and the rest of the output."""
        stdout, self.stderr = self._process.communicate(timeout=PROCESS_S_MAX)
        return self._process.returncode, stdout.splitlines()

    def is_killed(self) -> None:
        """Kills the process."""
        self._process.kill()
        self.ends()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # its children, too, if it has some
        self._process.communicate(timeout=PROCESS_S_MAX)


def environment(**variables: str) -> dict[str, str]:
    """Returns this process's environment, with these variables added."""
    return {**os.environ, **variables}
