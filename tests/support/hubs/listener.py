"""A server of a test, in an event loop on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Self

from tests.support.servers import free_port

END_S = 0.2
"""The time, in seconds, that a connection has to end by itself once the block is over."""


class Listener:
    """Listens on a port of its own while its block lasts; a subclass serves each connection."""

    def __init__(self) -> None:
        self.port = free_port()
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self._end = asyncio.Event()
        self._serving: set[asyncio.Task[object]] = set()
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)

    @property
    def url(self) -> str:
        """Returns the URL for a hub."""
        return f"redis://127.0.0.1:{self.port}/0"

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listening.wait(10.0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._listen())

    async def _listen(self) -> None:
        server = await asyncio.start_server(self._admit, "127.0.0.1", self.port)
        self._listening.set()
        await self._end.wait()
        server.close()
        if self._serving:
            _, others = await asyncio.wait(self._serving, timeout=END_S)
            for task in others:
                task.cancel()
            await asyncio.gather(*others)

    async def _admit(self, heard: asyncio.StreamReader, says: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            await self._serve(heard, says)
        except asyncio.CancelledError:
            says.close()  # the block is over
        finally:
            self._serving.discard(task)

    async def _serve(self, heard: asyncio.StreamReader, says: asyncio.StreamWriter) -> None:
        raise NotImplementedError
