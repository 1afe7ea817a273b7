"""The wires between nodes and a hub on this machine, which can be cut and healed at set times.

A cut is a black hole in both directions: connections stay open, nothing arrives, and data under way arrive when the
wire is healed, even if their sender has long given up. That is the worst that a network does to a protocol.
"""

# Toxiproxy is a server built with Go, and network namespaces need root; `replay --cut` and `demo` have to work on a
# machine that has nothing but Python. So each node's traffic goes through a relay in the command's own process, a unix
# socket for each node, and no part of the agent or the hub knows of it. TLS would rightly refuse a relay, so
# `rediss://` cannot be cut. A relay is no substitute for real faults: it produces no resets, no split packets, no
# packet loss, and nothing that the kernel does by itself.
from __future__ import annotations

import asyncio
import contextlib
import os
import re
import tempfile
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Final, Self
from urllib.parse import unquote

from reconverge.errors import InvalidSetting
from reconverge.hub.registry import split_url

ALL: Final = "all"
HALF: Final = "half"
_FORM: Final = re.compile(
    r"(?P<nodes>\d{1,4}|all|half)@(?P<start>\d{1,6}(?:\.\d+)?)s?\+(?P<length>\d{1,6}(?:\.\d+)?)s?"
)


@dataclass(frozen=True, slots=True)
class Cut:
    """An outage: these nodes are cut off from the hub for a while. Times are real seconds after the replay's start."""

    nodes: frozenset[int]
    start_s: float
    length_s: float

    @property
    def end_s(self) -> float:
        """Returns when the outage ends, in real seconds after the start."""
        return self.start_s + self.length_s

    @classmethod
    def parse(cls, text: str, *, nodes: int, random: Random) -> Cut:
        """Returns the cut that a text like `2@30s+20s` describes, as NODES@START+LENGTH. Raises InvalidSetting.

        `nodes` is the size of the fleet, of which `random` draws the nodes to cut off.
        """
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise InvalidSetting("cut", text, "is not NODES@START+LENGTH, like 2@30s+20s, half@10s+5s or all@8s+6s")
        wanted = {ALL: nodes, HALF: nodes // 2}.get(match["nodes"])
        count = int(match["nodes"]) if wanted is None else wanted
        if not 1 <= count <= nodes:
            raise InvalidSetting("cut", text, f"cuts off {count} nodes of {nodes}; there must be 1 to {nodes}")
        if float(match["length"]) == 0:
            raise InvalidSetting("cut", text, "lasts no time at all; write a length above 0, as in half@10s+5s")
        return cls(frozenset(random.sample(range(nodes), count)), float(match["start"]), float(match["length"]))


CHUNK_BYTES: Final = 65_536
START_S: Final = 5.0
DEFAULT_PORT: Final = 6379
LOOP_ROUNDS: Final = 10
"""Rounds of the event loop to wait: more than enough for a connection to be made or closed."""
SCHEMES: Final = ("embedded", "redis", "redis+unix", "valkey", "valkey+unix")

TEMPORARY_PATH_MAX: Final = 60
"""The longest path of the directory for temporary files, in bytes: the whole path of a unix socket has at most
107."""

_Opener = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


class Links:
    """One wire for each node: unix sockets that lead to the hub. A context manager that runs a thread of its own.

    Raises:
        InvalidSetting: wires cannot lead to a hub of this kind.
    """

    def __init__(self, hub_url: str, nodes: int) -> None:
        self._open, self._url = _way_to(hub_url)
        self._directory = tempfile.TemporaryDirectory(prefix="reconverge-links-", dir=_place())
        self._paths = [Path(self._directory.name) / f"{node}.sock" for node in range(nodes)]
        self._loop = asyncio.new_event_loop()
        self._healed = [asyncio.Event() for _ in range(nodes)]
        for healed in self._healed:
            healed.set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="reconverge-links", daemon=True)

    def url(self, node: int) -> str:
        """Returns the URL at which a node finds the hub, at the end of its wire."""
        return self._url(self._paths[node])

    def cut(self, nodes: frozenset[int]) -> None:
        """Cuts the wires of these nodes: from now on nothing passes between them and the hub."""
        for node in nodes:
            self._loop.call_soon_threadsafe(self._healed[node].clear)

    def heal(self, nodes: frozenset[int]) -> None:
        """Heals the wires of these nodes: everything passes again, beginning with the bytes held back."""
        for node in nodes:
            self._loop.call_soon_threadsafe(self._healed[node].set)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(START_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._hang_up(), self._loop).result(START_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_S)
        self._loop.close()
        self._directory.cleanup()

    async def _listen(self) -> None:
        self._servers = [
            await asyncio.start_unix_server(self._answer(healed), path=path)
            for path, healed in zip(self._paths, self._healed, strict=True)
        ]

    async def _hang_up(self) -> None:
        await _rounds()  # until accepted connections are open: a server that is closed before leaks them
        for server in self._servers:
            server.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        await _rounds()  # until aborted connections are closed

    def _answer(self, healed: asyncio.Event) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        """Returns a function that accepts a node's connection and relays its bytes to the hub and back."""

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = self._loop.create_task(self._carry(reader, writer, healed))
            self._pumps.add(task)

            def ended(task: asyncio.Task[None]) -> None:
                self._pumps.discard(task)
                writer.transport.abort()  # here, because a task that is cancelled at once never begins

            task.add_done_callback(ended)

        return connected

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, healed: asyncio.Event) -> None:
        try:
            await healed.wait()
            hub_reader, hub_writer = await self._open()
            try:
                await asyncio.gather(_pump(reader, hub_writer, healed), _pump(hub_reader, writer, healed))
            finally:
                hub_writer.transport.abort()
        except OSError:
            pass  # the hub is not there, which the node will notice


async def _rounds() -> None:
    for _ in range(LOOP_ROUNDS):
        await asyncio.sleep(0)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, healed: asyncio.Event) -> None:
    """Forwards bytes while the wire is whole; while it is cut, holds the bytes back."""
    with contextlib.suppress(OSError):
        while chunk := await reader.read(CHUNK_BYTES):
            await healed.wait()
            writer.write(chunk)
            await writer.drain()
        await healed.wait()
        if writer.can_write_eof():
            writer.write_eof()


def check_cuttable(hub_url: str) -> None:
    """Raises InvalidSetting if nodes cannot be cut off from the hub, as over TLS, which refuses a relay."""
    scheme = split_url(hub_url).scheme
    if scheme not in SCHEMES:
        raise InvalidSetting(
            "cut", f"{scheme}://", "nodes can only be cut off from embedded:// and redis:// hubs; use one of these"
        )


def _place() -> str:
    """Returns the directory for temporary files, or a shorter one if the paths of sockets would become too long."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) <= TEMPORARY_PATH_MAX else "/tmp"  # noqa: S108  # as a new directory of ours


def _way_to(hub_url: str) -> tuple[_Opener, Callable[[Path], str]]:
    """Returns two functions: one connects to the hub, one makes the hub's URL from the path of a node's socket."""
    parts = split_url(hub_url)
    check_cuttable(hub_url)
    login, at, _ = parts.netloc.rpartition("@")
    query = parts.query
    if parts.scheme in ("redis", "valkey") and "db=" not in query:
        query = "&".join(filter(None, [query, f"db={parts.path.strip('/') or '0'}"]))

    def url(socket: Path) -> str:
        return f"redis+unix://{login}{at}{socket}?{query}"

    if parts.scheme in ("redis+unix", "valkey+unix"):
        return (lambda: asyncio.open_unix_connection(unquote(parts.path))), url
    return (lambda: asyncio.open_connection(parts.hostname or "localhost", parts.port or DEFAULT_PORT)), url
