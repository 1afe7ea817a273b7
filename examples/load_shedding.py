"""A service that sheds load: five requests run at once, ten come at a time, and the important ones are served.

Run by itself it asks itself, without a server; under one it is `uvicorn examples.load_shedding:app`.
"""

import asyncio
from collections import Counter
from typing import Any

import httpx

from reconverge import Agent
from reconverge.integrations.shedding import LoadSheddingMiddleware
from reconverge.shedding import (
    AdaptiveConcurrency,
    FleetShedder,
    Gradient2,
    RequestRate,
    Stack,
    TrafficClasses,
    WorkerShedder,
)

agent = Agent("memory://")
classes = TrafficClasses(trust_header=True)  # a proxy in front of it sets the field x-traffic-class
stack = Stack(
    RequestRate(agent.limit("api", "1000/minute")),
    AdaptiveConcurrency(Gradient2(initial=5), classes=classes),
    FleetShedder(agent, "5000/second", classes=classes),
    WorkerShedder(classes=classes),
    switches={"fleet": "shadow"},  # it is new: it counts what it would refuse, and refuses nothing
)


async def service(_scope: Any, _receive: Any, send: Any) -> None:
    """Answers after 20 ms, which is what a database takes."""
    await asyncio.sleep(0.02)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"done"})


def customer(scope: Any) -> str:
    """What the rate is counted by."""
    return str(dict(scope["headers"]).get(b"x-api-key", b"none"), "latin-1")


app = LoadSheddingMiddleware(service, stack, key_func=customer)


async def main() -> None:
    """Be ten clients at a time, for half a second; a fifth of them are critical, and come last."""
    counts: Counter[str] = Counter()
    answers: list[httpx.Response] = []
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
        for names in [["critical"] * 2] + [["test"] * 8 + ["critical"] * 2] * 20:
            headers = [{"x-traffic-class": name, "x-api-key": "ada"} for name in names]
            answered = await asyncio.gather(*(client.get("/", headers=each) for each in headers))
            counts.update(f"{name} {answer.status_code}" for name, answer in zip(names, answered, strict=True))
            answers.extend(answered)
    print(*(f"{what}: {count}" for what, count in sorted(counts.items())), sep=", ")
    # On a busy machine the worker refuses some, too, and has no limit that it could tell.
    refused = next(answer for answer in reversed(answers) if "ratelimit-policy" in answer.headers and answer.is_error)
    print("refused by", *refused.json()["violated-policies"], "- come again in", refused.headers["retry-after"], "s")
    print("limits:", refused.headers["ratelimit-policy"])
    stats = stack.stats()
    print("refused:", {layer: sum(by_class.values()) for layer, by_class in stats.refused.items()})


if __name__ == "__main__":
    asyncio.run(main())
