"""Notes what input and output a decision does, which should be none.

Two witnesses: the interpreter's audit events, for files, processes, imports and new sockets; and the methods of
sockets, for what passes through those that are there.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

EVENTS: Final = ("open", "os.", "socket.", "subprocess.", "shutil.", "import", "urllib.", "ctypes.dlopen")
METHODS: Final = ("send", "sendall", "sendmsg", "sendto", "recv", "recv_into", "recvfrom", "recvmsg", "connect_ex")


class Watch:
    """Looks at one thread at a time, between `begin` and `end`; each thread on its own."""

    def __init__(self) -> None:
        self._looking = threading.local()
        sys.addaudithook(self._hear)
        for name in METHODS:
            setattr(socket.socket, name, self._noting(f"socket.{name}", getattr(socket.socket, name)))
        time.sleep = self._noting("sleep", time.sleep)

    def begin(self) -> None:
        """From now on whatever this thread does is noted."""
        self._looking.seen = []

    def end(self) -> str:
        """Stop noting. Returns what was noted."""
        seen: list[str] = self._looking.seen
        self._looking.seen = None
        return " ".join(dict.fromkeys(seen)) if seen else ""

    def _hear(self, event: str, _arguments: tuple[object, ...]) -> None:
        if event.startswith(EVENTS):
            self._note(event)

    def _note(self, what: str) -> None:
        seen = getattr(self._looking, "seen", None)
        if seen is not None:
            seen.append(what)

    def _noting(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any, **named: Any) -> Any:
            self._note(name)
            return original(*arguments, **named)

        return noted
