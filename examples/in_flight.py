"""Reports that are rendered, at most four at once on all nodes together; one customer has its own number.

It runs without anything: a Redis server of its own is started. With `RECONVERGE_HUB=redis://...` it uses that one, and
with `RECONVERGE_HUB=memory://` each node counts for itself.
"""

import asyncio
import os
from collections import Counter

from reconverge import Agent, SlotLimiter

HUB = os.environ.get("RECONVERGE_HUB", "embedded://in-flight")
AT_ONCE = 4
REPORTS = 40


class Workshop:
    """What renders reports, and counts how many at once."""

    def __init__(self) -> None:
        self.running = self.peak = 0
        self.counts: Counter[str] = Counter()

    async def render(self, limiter: SlotLimiter, node: str) -> None:
        """Render one report, after waiting for a slot."""
        async with limiter.slot("ada", timeout=30.0, max_queue=REPORTS) as slot:
            if not slot:
                self.counts["refused"] += 1
                return
            self.running += 1
            self.peak = max(self.peak, self.running)
            await asyncio.sleep(0.02)
            self.running -= 1
            self.counts[node] += 1


async def main() -> None:
    """Two nodes render what a customer asks for, all of it at the same time."""
    workshop = Workshop()
    async with (
        Agent(HUB, sync_interval=0.05, exchange_timeout=1.0) as one,
        Agent(HUB, sync_interval=0.05, exchange_timeout=1.0) as two,
    ):
        nodes = {
            name: agent.concurrency("render", AT_ONCE, lease=5.0, policy="strict")
            for name, agent in (("one", one), ("two", two))
        }
        await asyncio.gather(
            *(workshop.render(limiter, name) for _ in range(REPORTS // 2) for name, limiter in nodes.items())
        )
        print(f"{workshop.counts['one']} + {workshop.counts['two']} reports, {workshop.counts['refused']} refused")
        print(f"at most {workshop.peak} of {AT_ONCE} at once on both nodes")
        left = sum(limit.in_use or 0 for agent in (one, two) for limit in agent.stats().limits.values())
        print(f"{left} slots in use in the end")


if __name__ == "__main__":
    asyncio.run(main())
