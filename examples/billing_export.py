"""Bills what was used: the guards of two nodes charge two customers, and an exporter writes CloudEvents, each once.

It needs no server: the hub is in memory, and the clock is made up, so that three hours pass at once.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence

from reconverge import Agent
from reconverge.integrations import SPENT, Guard, PlainRequest, Response, Rule, by_header
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
    search = PlainRequest(route="/search", headers={"x-customer": "acme"})
    chat = PlainRequest(route="/chat", headers={"x-customer": "zeta"})
    for node in ("one", "two"):
        meter = Meter(clock)
        guard = Guard(Agent("memory://"), key_func=by_header("x-customer"), meter=meter)  # a framework makes its own
        requests = guard.declare(Rule(limits="300/hour", name="requests"))
        tokens = guard.declare(Rule(limits="1000000/hour", name="tokens", cost=100, settle=SPENT))
        with UsageReporter(meter, hub, namespace="shop", node=node, clock=clock):
            for _ in range(100 * (hour + 1)):
                guard.check(search, [requests])
                answer = guard.check(chat, [requests, tokens])
                answer.spend(40)  # and not 100, which was an estimate
                answer.finish(Response(200))
            for _ in range(100):
                guard.check(search, [requests])  # refused in the third hour, and charged nothing


async def main() -> None:
    """Export after each hour, and tell what customers are billed for."""
    exporter = Exporter(hub.usage, deliver, period="hour")
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
    told = [f"{name} {counts.requests} requests, {counts.refused} refused" for name, counts in largest]
    print("this month:", "; ".join(told))
    event = next(iter(billed.values()))
    print("for Stripe:", json.dumps(stripe_meter_event("shop", event, event_name="requests")))


asyncio.run(main())
