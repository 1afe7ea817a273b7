"""One node of a shop with metrics for Prometheus; run with URLs of nodes, it visits them.

RECONVERGE_HUB says where the nodes meet.
"""

import http.client
import itertools
import os
import sys
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from reconverge import Agent
from reconverge.integrations import by_header
from reconverge.integrations.fastapi import Limits
from reconverge.integrations.prometheus import AgentCollector
from reconverge.usage import Meter, UsageReporter

meter = Meter()
limits = Limits(Agent(namespace="shop"), key_func=by_header("x-api-key"), meter=meter)
registry = CollectorRegistry()
registry.register(AgentCollector(limits.guard.agent))


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
    """The agent exchanges as a task of the server's event loop; the usage of customers is reported by a thread."""
    async with limits.guard.agent:
        with UsageReporter(meter, os.environ["RECONVERGE_HUB"], namespace="shop"):
            yield


app = FastAPI(lifespan=lifespan)
limits.install(app)


@app.get("/items", dependencies=[Depends(limits("60/minute", name="items"))])
async def items() -> list[int]:
    """Limited for each customer, over both nodes."""
    return [1, 2, 3]


@app.get("/metrics")
async def metrics() -> Response:
    """What Prometheus reads."""
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


def visit(nodes: list[str]) -> None:
    """Asks each node in turn, four times a second: ada more than her limit, bob and eve less."""
    for node, customer in zip(itertools.cycle(nodes), itertools.cycle(["ada", "ada", "bob", "ada", "eve"])):
        request = urllib.request.Request(f"{node}/items", headers={"x-api-key": customer})  # noqa: S310  # http alone
        try:
            with urllib.request.urlopen(request, timeout=2) as response:  # noqa: S310  # likewise
                print(customer, response.status, flush=True)
        except (OSError, http.client.HTTPException) as error:  # 429 as well
            print(customer, getattr(error, "code", repr(error)), flush=True)
        time.sleep(0.25)


if __name__ == "__main__":
    visit(sys.argv[1:])
