"""Bills what was used: two nodes charge two customers, and an exporter writes CloudEvents of each hour, each once.

It needs no server: the hub is in memory, and the clock is made up, so that three hours pass at once.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence

from reconverge.testing import ManualClock
from reconverge.usage import Exporter, Meter, UsageEvent, UsageReporter, cloud_event, period_at, stripe_meter_event, top
from reconverge_sync.memory import MemoryHub

NOVEMBER = 1_793_491_200.0
"""2026-11-01T00:00:00Z."""
HOUR_S = 3600.0

clock = ManualClock(NOVEMBER)
hub = MemoryHub(clock=clock)
billed: dict[str, UsageEvent] = {}
"""By id, as a billing system tells events apart."""


def deliver(events: Sequence[UsageEvent]) -> None:
    """Send events to a billing system. They count as delivered when this returns; they may come twice."""
    for event in events:
        said = cloud_event("shop", event)
        billed[said["id"]] = event
        print(json.dumps(said))


def serve(hour: int) -> None:
    """Have two nodes serve requests for a while, and report what they charged when they end."""
    for node in ("one", "two"):
        meter = Meter(clock)
        with UsageReporter(meter, hub, namespace="shop", node=node, clock=clock):
            for _ in range(100 * (hour + 1)):
                meter.add("acme", "requests", route="/search")
                meter.add_request("zeta", [("requests", 1), ("tokens", 40)], "/chat")
            meter.add("acme", "requests", refused=True)


async def main() -> None:
    """Export after each hour, and tell what customers are billed for."""
    exporter = Exporter(hub.usage, deliver, period="hour", clock=clock)
    for hour in range(3):
        await asyncio.to_thread(serve, hour)
        clock.advance(HOUR_S)
        await exporter.run()
    clock.advance(HOUR_S)
    await exporter.run()

    sums: Counter[str] = Counter()
    for event in billed.values():
        sums[f"{event.key.identity} {event.key.limit}"] += event.counts.cost
    for name, cost in sorted(sums.items()):
        print(f"billed: {name} {cost}")
    largest = await top(hub.usage, period_at("month", NOVEMBER), by="requests", limit="requests")
    print("this month:", ", ".join(f"{name} {counts.requests} requests" for name, counts in largest))
    event = next(iter(billed.values()))
    print("for Stripe:", json.dumps(stripe_meter_event("shop", event, event_name="requests")))


asyncio.run(main())
