"""Processes that admit waiting requests: `python -m tests.support.programs.pacers saturate HUB OPTIONS`."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Final

from reconverge import Agent, Limit
from reconverge.clock import SECOND_NS, SystemClock
from reconverge.kernel import Table
from reconverge.kernel.algorithms.paced import CATCH_UP_NS
from tests.support.programs.agents import say, wait_for_a_line
from tests.support.waiting import eventually_in_loop

SECONDS: Final = 11.0
TICK_S: Final = 0.005
SETTLED_NS: Final = 2 * SECOND_NS
"""The time, in nanoseconds, after which a process with its part of the rate has met the others."""


async def saturate(hub: str, options: dict[str, int | dict[str, str | float | int]]) -> None:
    """Makes many requests wait over and over; prints "met", waits for a line, and prints the moments of admissions.

    It also prints for how many seconds the machine delayed it beyond the time for which it makes up.
    """
    said = options["limit"]
    assert isinstance(said, dict)
    agent = Agent(hub, sync_interval=0.1, exchange_timeout=5.0)
    queue = agent.limit("outflow", Limit(**said), policy="strict")  # type: ignore[arg-type]
    clock = SystemClock()
    released: list[int] = []

    stalled_ns = 0

    async def work() -> None:
        while await queue.wait("ada"):
            released.append(clock.monotonic_ns())

    async def watch() -> None:
        nonlocal stalled_ns
        last_ns = clock.monotonic_ns()
        while True:
            await asyncio.sleep(TICK_S)
            now_ns = clock.monotonic_ns()
            stalled_ns += max(0, now_ns - last_ns - CATCH_UP_NS)
            last_ns = now_ns

    async with agent:
        tasks = [asyncio.create_task(work()) for _ in range(int(str(options["waiters"])))]
        began_ns = clock.monotonic_ns()
        await eventually_in_loop(
            lambda: has_a_part(queue.control.table) and clock.monotonic_ns() > began_ns + SETTLED_NS,
            "a part of the rate",
        )
        say("met")
        await asyncio.to_thread(wait_for_a_line)
        began_ns = clock.monotonic_ns()
        tasks.append(asyncio.create_task(watch()))
        await asyncio.sleep(SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    moments = [moment / SECOND_NS for moment in released if moment >= began_ns]
    say(json.dumps({"moments": moments, "stalled": stalled_ns / SECOND_NS}))


def has_a_part(table: Table) -> bool:
    """Returns whether this node has an allowance."""
    return all(cell.allowance > 0 for cell in table.all_cells())


if __name__ == "__main__":
    program, url, text = sys.argv[1:]
    asyncio.run(saturate(url, json.loads(text)))
