"""Four workers call a metered server, and together stay inside its quota, so that it never refuses them."""

import asyncio
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import httpx

from reconverge import Agent
from reconverge.integrations.httpx import AsyncLimitedTransport

QUOTA, WINDOW_S, CALLS, WORKERS = 10, 2.0, 28, 4


class Metered(BaseHTTPRequestHandler):
    """Somebody else's API: remembers when it was called, and refuses whoever calls too often."""

    calls: ClassVar[list[float]] = []
    counting = threading.Lock()

    def do_GET(self) -> None:
        """Answer; the library calls it so."""
        with Metered.counting:
            now = time.monotonic()
            recent = sum(now - call < WINDOW_S for call in Metered.calls)
            Metered.calls.append(now)
        self.send_response(200 if recent < QUOTA else 429)
        self.send_header("RateLimit", f'"api";r={max(0, QUOTA - recent - 1)};t=1')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Say nothing."""


async def work(number: int, url: str) -> list[int]:
    """One worker: an agent, a client, and its part of the calls, each of which waits for its turn."""
    async with Agent("embedded://httpx-client", sync_interval=0.05, policy="strict") as agent:
        # In a little more than the server's window: some calls take longer to get there than others.
        limiter = agent.limit("api", f"{QUOTA}/{round(1.25 * WINDOW_S * 1000)}ms", algorithm="sliding-log")
        async with httpx.AsyncClient(transport=AsyncLimitedTransport(limiter)) as client:
            return [(await client.get(f"{url}?{number}")).status_code for _ in range(CALLS // WORKERS)]


async def main() -> None:
    """All of it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Metered)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/"
    answers = [status for part in await asyncio.gather(*(work(n, url) for n in range(WORKERS))) for status in part]
    took = Metered.calls[-1] - Metered.calls[0]
    print(f"{len(answers)} calls in {took:.1f} s, {answers.count(429)} of them refused by the server.")


asyncio.run(main())
