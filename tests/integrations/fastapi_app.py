"""An application of FastAPI's behind limits, to be served by several workers."""

from __future__ import annotations

import os

from fastapi import Depends, FastAPI
from fastapi.responses import PlainTextResponse

from reconverge import Agent
from reconverge.integrations import by_header
from reconverge.integrations.fastapi import Limits

agent = Agent(namespace="web", policy=os.environ["POLICY"])
limits = Limits(agent, key_func=by_header("x-key"))
app = FastAPI()
limits.install(app)


@app.get("/", dependencies=[Depends(limits(os.environ["LIMIT"], name="items"))])
async def items() -> PlainTextResponse:
    """What is limited."""
    return PlainTextResponse(str(os.getpid()))


@app.get("/stats")
async def stats() -> dict[str, object]:
    """How the exchanges of this worker go."""
    agent.start()
    (exchanges,) = agent.stats().exchanges
    return {"process": os.getpid(), "ready": agent.ready, "failures": exchanges.failures}
