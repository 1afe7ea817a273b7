"""A web server of a test's application, in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.support.servers import free_port
from tests.support.waiting import eventually

ROOT: Final = Path(__file__).parents[3]
ANSWER_S_MAX: Final = 30.0


class Served:
    """A command that serves HTTP on a port of its own, which replaces `{port}`; it is ready once it answers."""

    def __init__(self, *command: str, cwd: Path, **variables: str) -> None:
        self.port = free_port()
        paths = [str(ROOT / "agent"), str(ROOT / "sync"), str(ROOT)]
        self._process = subprocess.Popen(
            [sys.executable, *(word.replace("{port}", str(self.port)) for word in command)],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **variables},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def get(self, path: str) -> tuple[int, dict[str, str]]:
        """Returns the status and the header fields of an answer; each call connects anew, to any worker."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_S_MAX)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            return answer.status, dict(answer.getheaders())
        finally:
            connection.close()

    def status(self, path: str) -> int:
        """Returns the status alone; 0 while no process listens."""
        try:
            return self.get(path)[0]
        except ConnectionError:
            return 0

    def __enter__(self) -> Self:
        try:
            eventually(lambda: self.status("/nowhere") or self._process.poll() is not None, "the server answers")
            assert self._process.poll() is None, f"the server ended: {self._process.communicate()[1]}"
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.communicate(timeout=ANSWER_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
