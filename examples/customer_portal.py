"""A FastAPI application in which customers see what they may use; run by itself, it is two customers and an operator.

Each customer sees its plan, what is left of it, and why it is refused. The API of contracts is mounted beside that.
"""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import ceil, isfinite
from typing import Annotated, Any

import httpx
from fastapi import Depends, FastAPI, Header, HTTPException

from reconverge import Agent
from reconverge.contracts.contracts import Contracts
from reconverge.contracts.document import checked
from reconverge.contracts.store.memory_book import MemoryBook
from reconverge.integrations.contracts.api import contracts_api

DOCUMENT = checked(
    {
        "plans": {
            "free": {"limits": {"minute": "5/minute", "daily": {"limit": "1000/day", "algorithm": "fixed-window"}}},
            "pro": {"limits": {"minute": "500/minute", "daily": {"limit": "1000000/day", "algorithm": "fixed-window"}}},
        },
        "customers": {"acme": "free", "globex": "pro"},
    }
)
KEYS = {"acme-api-key": "acme", "globex-api-key": "globex"}
"""Where a shop would ask its database which customer a key belongs to."""
OPERATOR = os.environ.get("PORTAL_TOKEN") or secrets.token_urlsafe()

agent = Agent(namespace="portal")
contracts = Contracts(agent, DOCUMENT)
book = MemoryBook(DOCUMENT, told=lambda version, document: contracts.replace(document, version))
"""A fleet keeps its contracts at its hub; here they end with the process, and changes are obeyed at once."""


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
    """The agent exchanges as a task of the server's event loop, and says its last words when that ends."""
    async with agent:
        yield


app = FastAPI(lifespan=lifespan)
app.mount("/admin", contracts_api(book, tokens=[f"operator: {OPERATOR}, write"], contracts=contracts))


async def customer_of(x_api_key: Annotated[str, Header()]) -> str:
    """The customer that a request comes from."""
    if x_api_key not in KEYS:
        raise HTTPException(401, "this key is not known")
    return KEYS[x_api_key]


@app.get("/items")
async def items(customer: Annotated[str, Depends(customer_of)]) -> list[int]:
    """What the shop sells. Limited by the customer's contract; a refusal says why, and when to come again."""
    if not contracts.hit(customer):
        why = contracts.explain(customer)
        wait = {"Retry-After": str(max(1, ceil(why.wait_s)))} if isfinite(why.wait_s) else {}
        raise HTTPException(429, why.sentence, headers=wait)
    return [1, 2, 3]


@app.get("/portal")
async def portal(customer: Annotated[str, Depends(customer_of)]) -> dict[str, Any]:
    """What a customer sees of its contract. Looking costs nothing."""
    found = contracts.explain(customer)
    left = {each.name: f"{each.remaining} of {each.at_once}" for each in found.limits}
    return {"plan": found.plan, "left": left, "status": found.sentence}


async def main() -> None:
    """Be two customers, and the operator that one of them writes to."""
    async with lifespan(app), httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
        for key, customer in KEYS.items():
            headers = {"x-api-key": key}
            answers = [await client.get("/items", headers=headers) for _ in range(8)]
            print(customer, *(answer.status_code for answer in answers))
            print(customer, "sees:", (await client.get("/portal", headers=headers)).json()["status"])
        operator = {"Authorization": f"Bearer {OPERATOR}"}
        told = (await client.get("/admin/customers/acme/explain", headers=operator)).json()
        print("the operator sees: plan", told["plan"], "- refused by", *told["refused_by"])
        changed = await client.put("/admin/contracts/acme", headers=operator | {"If-Match": '"1"'}, json="pro")
        print("acme is moved to pro:", changed.status_code, changed.json())
        answers = [await client.get("/items", headers={"x-api-key": "acme-api-key"}) for _ in range(8)]
        print("acme", *(answer.status_code for answer in answers))


if __name__ == "__main__":
    asyncio.run(main())
