"""A uvicorn on a thread of this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from tests.support.servers import free_port
from tests.support.waiting import eventually


def uvicorn_of(app: Any) -> uvicorn.Server:
    """Returns a server of an application on a port of its own."""
    return uvicorn.Server(uvicorn.Config(app, port=free_port(), log_level="error", lifespan="off"))


@contextmanager
def running(server: uvicorn.Server) -> Iterator[int]:
    """Yields the port of a server that listens until the block ends."""
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        eventually(lambda: server.started, "uvicorn listens")
        yield server.config.port
    finally:
        server.should_exit = True
        thread.join()
