"""Runs a gunicorn in this process, whose workers make requests by themselves."""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

from gunicorn.app.base import BaseApplication

PR_SET_PDEATHSIG: Final = 1
"""The option of `prctl` that makes the kernel kill a process when its parent ends, for any reason."""


def application(
    _request: dict[str, Any], start_response: Callable[[str, list[tuple[str, str]]], object]
) -> Iterable[bytes]:
    """Stands for the application, which is never called."""
    start_response("204 No Content", [])
    return []


class _Prefork(BaseApplication):  # type: ignore[misc]
    """Gunicorn with settings from this module alone."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        super().__init__()

    def load_config(self) -> None:
        for name, value in self._settings.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        return application


def serve(work: Callable[[int], None], *, workers: int) -> None:
    """Forks `workers` workers, each of which works on a thread; never returns, and ends by SIGTERM."""

    def begin(worker: Any) -> None:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        threading.Thread(target=work, args=(worker.age,), name="work", daemon=True).start()

    settings = {
        "bind": "127.0.0.1:0",
        "workers": workers,
        "preload_app": True,
        "post_worker_init": begin,
        "graceful_timeout": 5,
        "loglevel": "warning",
        "control_socket_disable": True,
    }
    _Prefork(settings).run()
