"""An asyncio service: the agent exchanges as a task of the same loop, and no request waits for it.

RECONVERGE_HUB says where the nodes meet; without it, a private redis-server is started for this example.
"""

import asyncio
import math
import os
from collections import Counter

from reconverge import Agent, Decision, RateLimiter

CLIENTS = {"ada": (250, 0.004), "bob": (110, 0.01), "eve": (25, 0.04)}
"""How often each client asks, and how many seconds it pauses in between."""


async def handle(limiter: RateLimiter, client: str) -> tuple[Decision, int, dict[str, str]]:
    """Answer one request, as the handler of any web framework would."""
    decision = limiter.hit(client)
    headers = {"X-RateLimit-Limit": str(decision.limit), "X-RateLimit-Remaining": str(decision.remaining)}
    if not decision:
        return decision, 429, headers | {"Retry-After": str(math.ceil(decision.retry_after))}
    return decision, 200, headers


async def visit(limiter: RateLimiter, client: str) -> Counter[str]:
    """Be a client for a while, and count what it was answered.

    A refusal may be in doubt: until the hub has answered about a client, this node has a part of its limit and no more.
    """
    times, pause = CLIENTS[client]
    answers: Counter[str] = Counter()
    for _ in range(times):
        decision, status, _ = await handle(limiter, client)
        answers[f"{status}" if decision or decision.certain else f"{status} in doubt"] += 1
        await asyncio.sleep(pause)
    return answers


async def main() -> None:
    """Serve three clients at once, under a limit of 100 requests per hour for each."""
    hub = os.environ.get("RECONVERGE_HUB", "embedded://asyncio-service")
    async with Agent(hub, namespace=f"example-{os.getpid()}") as agent:
        limiter = agent.limit("requests", "100/hour")
        answers = await asyncio.gather(*(visit(limiter, client) for client in CLIENTS))
        for client, counts in zip(CLIENTS, answers, strict=True):
            refused = counts["429"] + counts["429 in doubt"]
            print(f"{client} asked {counts.total()} times: {counts['200']} times 200, {refused} times 429", end=", ")
            print(f"{counts['429 in doubt']} of them in doubt")
        (exchanges,) = agent.stats().exchanges
        print(f"the hub answered {exchanges.exchanges} times meanwhile, failures: {exchanges.failures or 'none'}")


asyncio.run(main())
