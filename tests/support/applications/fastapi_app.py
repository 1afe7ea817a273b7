"""A FastAPI application behind limits, to be served by several workers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Annotated, Final

from fastapi import Depends, FastAPI, Request
from fastapi.responses import PlainTextResponse, StreamingResponse

from reconverge import Agent
from reconverge.integrations import SPENT, Outcome, by_header
from reconverge.integrations.fastapi import Limits

ESTIMATE: Final = 50_000
agent = Agent(namespace="web", policy=os.environ["POLICY"])
limits = Limits(agent, key_func=by_header("x-key"))
app = FastAPI()
limits.install(app)


@app.get("/", dependencies=[Depends(limits(os.environ["LIMIT"], name="items"))])
async def items(request: Request) -> PlainTextResponse:
    return PlainTextResponse(str(os.getpid()), headers={"x-seen": request.headers.get("x-key", "").encode().hex()})


@app.get("/items/{number}", dependencies=[Depends(limits("1000000/day", name="each", per_method=True))])
async def item(number: str) -> PlainTextResponse:
    return PlainTextResponse(str(len(number)))


@app.get("/stream")
async def stream(
    outcome: Annotated[Outcome, Depends(limits("100000/day", name="tokens", cost=ESTIMATE, settle=SPENT))],
) -> StreamingResponse:
    """Streams until the client leaves, at a cost of one for each part."""

    async def parts() -> AsyncIterator[str]:
        while True:
            outcome.spend(1)
            yield "part\n"
            await asyncio.sleep(0.001)

    return StreamingResponse(parts())


@app.get("/stats")
async def stats() -> dict[str, object]:
    """Returns the statistics of this worker's exchanges."""
    agent.start()
    (exchanges,) = agent.stats().exchanges
    known = {name: each.keys for name, each in agent.stats().limits.items() if each.keys}
    return {
        "process": os.getpid(),
        "ready": agent.ready,
        "failures": exchanges.failures,
        "limits": known,
        "broken": limits.guard.stats().failures,
    }
