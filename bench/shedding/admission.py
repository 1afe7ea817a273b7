"""The cost of an admission by a stack, when the ASGI application is called directly, beside the bare application.

Both are called by turns in one process, so the ratio holds on a slow machine as well; no request waits in either. A
round blocks the event loop for some ten milliseconds, or for a second on a busy machine, which is what the worker
shedder sheds for; so its target is a minute here. Its work is the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from bench.child import Missing
from bench.report.found import Spread
from bench.web.limited import KEYS, nothing
from bench.web.middleware import cost_us, driven, scope_of
from reconverge import Agent
from reconverge.integrations.shedding import LoadSheddingMiddleware
from reconverge.shedding import AdaptiveConcurrency, FleetShedder, LoopLag, RequestRate, Stack, WorkerShedder

ROUNDS: Final = 101
CALLS: Final = 1000
ROOMY: Final = "1000000000/hour"
ADMISSION_US_MAX: Final = 10.0
WHOLE: Final = "the whole stack: rate, concurrency, fleet, worker"
WHOLE_BARE: Final = "the whole stack, without response fields"
DEFAULT: Final = "the default stack: concurrency, worker"


@dataclass(frozen=True, slots=True)
class Cost:
    """The time of a request with a stack and without one, in microseconds."""

    added_us: Spread
    bare_us: Spread

    @property
    def ratio(self) -> float:
        """Returns the time with the stack as a multiple of the time without it."""
        return (self.bare_us.median + self.added_us.median) / self.bare_us.median


def measure(*, quick: bool) -> Mapping[str, Cost]:
    """Measures each stack in turn with the bare application."""
    return asyncio.run(_measure(quick=quick))


async def _measure(*, quick: bool) -> Mapping[str, Cost]:
    rounds, calls = (3, 100) if quick else (ROUNDS, CALLS)
    stacks = {WHOLE: _whole(fields=True), WHOLE_BARE: _whole(fields=False), DEFAULT: _default()}
    bare = driven(nothing)
    costs: dict[str, Cost] = {}
    for name, app in stacks.items():
        made = driven(app)
        for number in range(KEYS):  # each key is known by then, and a thread measures the loop
            made[0](scope_of(number))
            if number % 100 == 0:
                await asyncio.sleep(0)
        floor: list[float] = []
        added: list[float] = []
        for _ in range(rounds):
            floor.append(cost_us(bare, calls))
            await asyncio.sleep(0)
            added.append(cost_us(made, calls) - floor[-1])
            await asyncio.sleep(0)
        refused = sum(sum(by_class.values()) for by_class in app.stack.stats().refused.values())
        if refused:
            raise Missing(f"{refused} requests were refused, so what was measured is no admission")
        costs[name] = Cost(Spread.of(added), Spread.of(floor))
    return costs


def _whole(*, fields: bool) -> LoadSheddingMiddleware:
    agent = Agent("memory://")
    stack = Stack(RequestRate(agent.limit("api", ROOMY)), AdaptiveConcurrency(), FleetShedder(agent, ROOMY), _worker())
    return LoadSheddingMiddleware(nothing, stack, key_func=_key, fields=fields)


def _default() -> LoadSheddingMiddleware:
    return LoadSheddingMiddleware(nothing, Stack(AdaptiveConcurrency(), _worker()))


def _worker() -> WorkerShedder:
    return WorkerShedder(LoopLag(target=60.0))


def _key(scope: Any) -> str:
    for name, value in scope["headers"]:
        if name == b"x-api-key":
            return str(value, "latin-1")
    return "none"
