"""A server that has one answer to every message."""

from __future__ import annotations

import asyncio

from tests.support.hubs.listener import Listener


class Parrot(Listener):
    """Answers each message with `reply`, or closes the connection if that is empty."""

    def __init__(self, reply: bytes = b"") -> None:
        super().__init__()
        self.reply = reply

    async def _serve(self, heard: asyncio.StreamReader, says: asyncio.StreamWriter) -> None:
        try:
            while await heard.read(1 << 16) and self.reply:
                says.write(self.reply)
                await says.drain()
        except OSError:
            return  # a client that hangs up needs no answer
        finally:
            says.close()
