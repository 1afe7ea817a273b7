"""A relay between agents and a server that loses messages on order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from random import Random

from tests.support.hubs.listener import Listener


class Relay(Listener):
    """Listens on a port of its own, and passes everything on to another port.

    A new `target_port` is for connections made from then on. `lose_replies` and `lose_requests` are the shares of the
    lost messages in either direction. A message is lost whole, and the connection stays open: its ends cannot tell that
    from a slow network.
    """

    def __init__(self, target_port: int, *, seed: int = 0) -> None:
        super().__init__()
        self.lose_replies = 0.0
        self.lose_requests = 0.0
        self.lost_replies = 0
        self.lost_requests = 0
        self.target_port = target_port
        self._random = Random(seed)

    def heal(self) -> None:
        self.lose_replies = self.lose_requests = 0.0

    async def _serve(self, heard: asyncio.StreamReader, says: asyncio.StreamWriter) -> None:
        server_in, server_out = await asyncio.open_connection("127.0.0.1", self.target_port)
        pumps = [
            asyncio.ensure_future(self._pump(heard, server_out, self._loses_request)),
            asyncio.ensure_future(self._pump(server_in, says, self._loses_reply)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            says.close()
            server_out.close()
            # The error of a connection that is cut off does not matter: connections end when they end.
            with contextlib.suppress(OSError):
                await asyncio.gather(says.wait_closed(), server_out.wait_closed(), return_exceptions=True)

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
