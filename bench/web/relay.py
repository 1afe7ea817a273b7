"""A relay in a process of its own, between agents and a server, which imitates faults of networks.

Run as `python -m bench.web.relay PORT TARGET_PORT`; obeys each line of its standard input, and confirms it: `pass`;
`refuse` connections, and break off the existing ones; be a `hole`, in which all traffic vanishes, attempts to connect
too; `delay` the answers by the given seconds.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from bench.child import ROOT

PASS, REFUSE, HOLE, DELAY = "pass", "refuse", "hole", "delay"
PART: Final = 1 << 16
FILLERS: Final = 4
"""The number of connections that fill the queue of a listener which has room for none, and accepts none."""


class Relay:
    """Listens on a port, and passes everything on to another port, unless it imitates a fault."""

    def __init__(self, port: int, target_port: int) -> None:
        self._port = port
        self._target_port = target_port
        self._server: asyncio.Server | None = None
        self._hole: list[socket.socket] = []
        self._mode = PASS
        self._delay_s = 0.0
        self._pumps: set[asyncio.Task[None]] = set()

    async def become(self, mode: str, seconds: float = 0.0) -> None:
        """Changes to another mode."""
        self._mode, self._delay_s = mode, seconds
        for filler in self._hole:
            filler.close()
        self._hole = []
        if mode in (REFUSE, HOLE):
            await self._close_up()
        elif self._server is None:
            self._server = await asyncio.start_server(self._connect, "127.0.0.1", self._port)

    async def _close_up(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._mode == REFUSE:
            for pump in self._pumps:
                pump.cancel()
            return
        listener = socket.create_server(("127.0.0.1", self._port), backlog=0)
        self._hole = [listener]
        for _ in range(FILLERS):
            filler = socket.socket()
            filler.settimeout(0)
            with suppress(BlockingIOError):
                filler.connect(("127.0.0.1", self._port))
            self._hole.append(filler)

    async def _connect(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        server_in, server_out = await asyncio.open_connection("127.0.0.1", self._target_port)
        there = asyncio.create_task(self._pump(client_in, server_out, answers=False))
        back = asyncio.create_task(self._pump(server_in, client_out, answers=True))
        self._pumps |= {there, back}
        await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
        for pump in (there, back):
            pump.cancel()
            self._pumps.discard(pump)
        client_out.close()
        server_out.close()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, answers: bool) -> None:
        with suppress(OSError):
            while part := await source.read(PART):
                if answers and self._mode == DELAY:
                    await asyncio.sleep(self._delay_s)
                if self._mode != HOLE:
                    sink.write(part)
                    await sink.drain()


async def _obey(port: int, target_port: int) -> None:
    relay = Relay(port, target_port)
    await relay.become(PASS)
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        mode, *seconds = line.split()
        await relay.become(mode, *map(float, seconds))
        print(line, end="", flush=True)


class RelayProcess:
    """A relay that runs in another process."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self._process = process
        self.port = port

    def become(self, mode: str, seconds: float = 0.0) -> None:
        """Changes the relay to another mode."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(mode, seconds, file=self._process.stdin, flush=True)
        self._process.stdout.readline()


@contextmanager
def relay_to(target_port: int, *, port: int) -> Iterator[RelayProcess]:
    """Runs a relay on `port`, until the end of the block."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [sys.executable, "-m", "bench.web.relay", str(port), str(target_port)],
        env=os.environ | {"PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield RelayProcess(process, port)
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(_obey(int(sys.argv[1]), int(sys.argv[2])))
