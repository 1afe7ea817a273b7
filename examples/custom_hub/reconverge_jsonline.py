"""A hub of our own: a small server keeps the counts, and an exchange is a line of JSON there and a line back."""

import asyncio
import contextlib
import json
import socketserver
import sys
import threading
from collections.abc import Callable
from secrets import token_hex
from typing import Any, TypeVar
from urllib.parse import urlsplit

from reconverge.clock import Clock, SystemClock
from reconverge.errors import HubUnavailable, InvalidSetting
from reconverge.hub.json_codec import plain_answer, plain_batch, plain_totals, read_answer, read_batch, read_totals
from reconverge.hub.merge_rule import MergeRule, open_merge_rule
from reconverge.hub.registry import HubSettings, redacted
from reconverge.hub.report import Answer, Batch, Totals

T = TypeVar("T")
LINE_BYTES_MAX = 4 * 1024 * 1024


class JsonLineHub:
    """Nodes meet at `jsonline://host:port`. Each exchange has a connection of its own, which no fork can inherit."""

    shards = 1  # the keys are not divided

    def __init__(self, url: str, settings: HubSettings) -> None:
        self._settings = settings
        try:
            place = urlsplit(url)
            self._host, self._port = place.hostname or "127.0.0.1", place.port or 7800
        except ValueError:
            raise InvalidSetting("hub", redacted(url), "is not like jsonline://localhost:7800") from None

    async def exchange(self, batch: Batch) -> Answer:
        return await self._ask(read_answer, {"batch": plain_batch(batch)})

    async def totals(self) -> dict[str, Totals]:
        return await self._ask(read_totals, {})

    async def close(self) -> None:
        """No connection outlives an exchange."""

    async def _ask(self, read: Callable[[object], T], question: dict[str, object]) -> T:
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                reader, writer = await asyncio.open_connection(self._host, self._port, limit=LINE_BYTES_MAX)
                try:
                    writer.write(json.dumps(question | {"namespace": self._settings.namespace}).encode() + b"\n")
                    return read(json.loads(await reader.readline()))
                finally:
                    writer.close()
        except (OSError, ValueError, RecursionError) as error:
            kinds: dict[type, str] = {TimeoutError: "timeout", ConnectionRefusedError: "refused"}
            kind = kinds.get(type(error), "connection") if isinstance(error, OSError) else "protocol"
            raise HubUnavailable(kind, str(error) or "no answer in time") from error


class Server(socketserver.ThreadingTCPServer):
    """Keeps all namespaces in memory; when it has been restarted, the nodes bring it their counts again."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, address: tuple[str, int], clock: Clock) -> None:
        super().__init__(address, Conversation)
        self.clock = clock
        self.rules: dict[str, MergeRule] = {}
        self.lock = threading.Lock()

    def answer(self, question: dict[str, Any]) -> object:
        batch = read_batch(question["batch"]) if "batch" in question else None  # checked before anything is merged
        namespace = str(question["namespace"])
        with self.lock:
            if namespace not in self.rules:
                self.rules[namespace] = open_merge_rule(clock=self.clock, new_name=lambda: token_hex(8))
                self.rules[namespace].lose_data()  # there may be nodes that hold lines from before this server began
            rule = self.rules[namespace]
            return plain_totals(rule.sums()) if batch is None else plain_answer(rule.merge(batch))


class Conversation(socketserver.StreamRequestHandler):
    server: Any
    timeout = 60.0

    def handle(self) -> None:
        """Answer one question; whoever asks what is none gets no answer."""
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
            answer = self.server.answer(json.loads(self.rfile.readline(LINE_BYTES_MAX)))
            self.wfile.write(json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    Server(("127.0.0.1", int(sys.argv[1])), SystemClock()).serve_forever()
