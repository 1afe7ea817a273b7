"""Notes the input and output of decisions, of which there should be none.

Two witnesses: the interpreter's audit events, for files, processes, imports and new sockets; and the methods of
sockets, for the data that pass through existing ones.
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
    """Watches one thread at a time, between `begin` and `end`; each thread on its own."""

    def __init__(self) -> None:
        self._looking = threading.local()
        sys.addaudithook(self._hear)
        for name in METHODS:
            setattr(socket.socket, name, self._noting(f"socket.{name}", getattr(socket.socket, name)))
        time.sleep = self._noting("sleep", time.sleep)

    def begin(self) -> None:
        """Begins to note all input and output of this thread."""
        self._looking.seen = []

    def end(self) -> str:
        """Stops noting. Returns the notes."""
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
