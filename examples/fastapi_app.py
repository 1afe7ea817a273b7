"""A FastAPI application with limits, for any number of workers; run by itself, it asks itself some questions.

RECONVERGE_HUB says where the workers meet; without it, this process is alone.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import httpx
from fastapi import Depends, FastAPI

from reconverge import Agent
from reconverge.integrations import SPENT, Outcome, Request, by_header
from reconverge.integrations.fastapi import Limits

limits = Limits(Agent(namespace="shop"), key_func=by_header("x-api-key"), in_doubt="ask:50ms")


async def plan(request: Request) -> str:
    """What a customer has paid for; a database might say so."""
    return {"ada": "100/minute", "bob": "5/minute"}.get(request.header("x-api-key") or "", "1/minute")


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
    """The agent exchanges as a task of the server's event loop, and says its last words when that ends."""
    async with limits.guard.agent:
        yield


app = FastAPI(lifespan=lifespan)
limits.install(app)


@app.get("/items", dependencies=[Depends(limits(plan, name="items"))])
async def items() -> list[int]:
    """Limited by the customer's plan."""
    return [1, 2, 3]


@app.get("/chat")
async def chat(budget: Annotated[Outcome, Depends(limits("1000/minute", cost=300, settle=SPENT))]) -> str:
    """Expected to cost 300 tokens, and charged for what it did cost."""
    budget.spend(60)
    return "so it goes"


async def main() -> None:
    """Be two customers."""
    async with lifespan(app), httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
        for customer, path in [("ada", "/items"), ("bob", "/items"), ("ada", "/chat")]:
            answers = [await client.get(path, headers={"x-api-key": customer}) for _ in range(20)]
            print(customer, path, *(answer.status_code for answer in answers), answers[-1].headers["ratelimit"])


if __name__ == "__main__":
    asyncio.run(main())
