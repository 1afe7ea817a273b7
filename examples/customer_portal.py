"""A FastAPI application in which customers see what they may use; run by itself, it is two customers and an operator.

Each customer sees its plan, what is left of it, why it is refused, and what it has used, as the invoice will say.
The API of contracts is mounted beside that.
"""

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import httpx
from fastapi import Depends, FastAPI, Header, HTTPException

from reconverge import Agent
from reconverge.contracts.contracts import Contracts
from reconverge.contracts.document import checked
from reconverge.contracts.store.memory_book import MemoryBook
from reconverge.integrations import Request, Rule
from reconverge.integrations.asgi import RateLimitMiddleware
from reconverge.integrations.contracts.api import contracts_api
from reconverge.usage import Meter, UsageReporter, period_at, totals
from reconverge_sync.memory import MemoryHub

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
meter = Meter()
hub = MemoryHub()
"""Where usage is added up; a fleet names its Redis."""
reporter = UsageReporter(meter, hub, namespace="portal")
book = MemoryBook(DOCUMENT, changed=lambda version, document: contracts.replace(document, version))
"""A fleet keeps its contracts at its hub; here they end with the process, and changes are obeyed at once."""


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
    """The agent and the reporter of usage say their last words when the server ends."""
    async with agent, reporter:
        yield


def customer_by_key(request: Request) -> str | None:
    """The customer that a request comes from, for its limits; one that is not known is not let in by its route."""
    return KEYS.get(request.header("x-api-key") or "")


app = FastAPI(lifespan=lifespan)
limited = Rule(
    limits=contracts,
    key_func=customer_by_key,
    paths=["/items"],
    exempt_when=lambda request: customer_by_key(request) is None,
)
app.add_middleware(RateLimitMiddleware, rules=[limited], agent=agent, meter=meter)
app.mount("/admin", contracts_api(book, tokens=[f"operator: {OPERATOR}, write"], contracts=contracts))


async def customer_of(x_api_key: Annotated[str, Header()]) -> str:
    """The customer that a request comes from."""
    if x_api_key not in KEYS:
        raise HTTPException(401, "this key is not known")
    return KEYS[x_api_key]


@app.get("/items", dependencies=[Depends(customer_of)])
async def items() -> list[int]:
    """What the shop sells. Limited by the customer's contract, and counted for its invoice."""
    return [1, 2, 3]


async def used(customer: str) -> dict[str, str]:
    """What a customer has used this month, as far as nodes have reported it: ten seconds ago by default."""
    found = await totals(hub.usage, period_at("month", time.time()), by=("limit",), identity=customer)
    return {key.limit: f"{counts.cost} used, {counts.refused} refused" for key, counts in sorted(found.items())}


@app.get("/portal")
async def portal(customer: Annotated[str, Depends(customer_of)]) -> dict[str, Any]:
    """What a customer sees of its contract. Looking costs nothing."""
    found = contracts.explain(customer)
    left = {each.name: f"{each.remaining} of {each.at_once}" for each in found.limits}
    return {"plan": found.plan, "left": left, "status": found.sentence, "used": await used(customer)}


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
    for customer in KEYS.values():  # after the reporter's last word
        print(customer, "is billed for:", await used(customer))


if __name__ == "__main__":
    asyncio.run(main())
