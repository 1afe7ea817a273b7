"""A relay between agents and a server that loses what passes through it, when told to."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from random import Random
from types import TracebackType
from typing import Self

from tests.support.servers import free_port


class Relay:
    """Listens on a port of its own, and passes everything on to another; on a thread of its own.

    `lose_replies` and `lose_requests` are the shares of what it swallows in either direction. What it swallows it
    swallows whole, and the connection stays open: its ends cannot tell that from a slow network.
    """

    def __init__(self, target_port: int, *, seed: int = 0) -> None:
        self.port = free_port()
        self.lose_replies = 0.0
        self.lose_requests = 0.0
        self.lost_replies = 0
        self.lost_requests = 0
        self._target_port = target_port
        self._random = Random(seed)
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)

    @property
    def url(self) -> str:
        """Where a hub finds the server by way of this relay."""
        return f"redis://127.0.0.1:{self.port}/0"

    def heal(self) -> None:
        self.lose_replies = self.lose_requests = 0.0

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
        server = await asyncio.start_server(self._connect, "127.0.0.1", self.port)
        self._listening.set()
        await self._end.wait()
        server.close()

    async def _connect(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        server_in, server_out = await asyncio.open_connection("127.0.0.1", self._target_port)
        pumps = [
            asyncio.ensure_future(self._pump(client_in, server_out, self._loses_request)),
            asyncio.ensure_future(self._pump(server_in, client_out, self._loses_reply)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            client_out.close()
            server_out.close()
            # Whoever is cut off does not matter: connections end when they end.
            with contextlib.suppress(OSError):
                await asyncio.gather(client_out.wait_closed(), server_out.wait_closed(), return_exceptions=True)

    @staticmethod
    async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, loses: Callable[[], bool]) -> None:
        with contextlib.suppress(OSError):
            while part := await source.read(1 << 20):
                if not loses():
                    sink.write(part)
                    await sink.drain()

    def _loses_reply(self) -> bool:
        lost = self._random.random() < self.lose_replies
        self.lost_replies += lost
        return lost

    def _loses_request(self) -> bool:
        lost = self._random.random() < self.lose_requests
        self.lost_requests += lost
        return lost
