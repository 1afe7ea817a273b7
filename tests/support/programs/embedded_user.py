"""A process that uses an embedded hub, and obeys the lines of its standard input; see `test_embedded_server`."""

from __future__ import annotations

import asyncio
import sys

from reconverge.clock import SystemClock
from reconverge.errors import HubUnavailable
from reconverge.hub.registry import HubSettings
from reconverge.testing.claims.scenes.scene import Scene, Voice, limit
from reconverge_sync.embedded.hub import EmbeddedHub

TRIES_MAX = 10


async def use(url: str, name: str) -> None:
    """Answers each line with one line, which is empty if the hub is not available for long."""
    hub = EmbeddedHub(url, HubSettings("shared", 5.0))
    voice = Scene(hub, SystemClock(), join=lambda known: known).voice(account=name)
    voice.node = name
    print("here", flush=True)  # noqa: T201  # this is how it speaks
    for line in sys.stdin:
        answer = ""
        for _ in range(TRIES_MAX):
            try:
                answer = await _answer(hub, voice, line.split())
            except HubUnavailable as error:
                # As an agent does, it tries again: the connection may still be that to a server that is no more.
                print(error, file=sys.stderr)  # noqa: T201
            else:
                break
        print(answer, flush=True)  # noqa: T201


async def _answer(hub: EmbeddedHub, voice: Voice, words: list[str]) -> str:
    match words:
        case ["hello"]:
            return (await voice.says_hello()).generation
        case ["report", current]:
            return str((await voice.reports(current=int(current))).current)
        case ["strict", need]:
            strict = limit("strict", overshoot_milli=0)
            return str((await voice.reports("eve", of=strict, need=int(need))).allowance)
        case ["close"]:
            await hub.close()
            return "closed"
        case _:
            return "what?"


if __name__ == "__main__":
    asyncio.run(use(sys.argv[1], sys.argv[2]))
