"""Goal: a request is held to its customer's own contract, also where the node has never met the customer before.

Method: FastAPI and Flask with contracts at a real Redis, of which the nodes hold no page when the first request comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import fastapi
import flask
import httpx
import pytest

from reconverge import Agent
from reconverge.contracts.contracts import Contracts
from reconverge.contracts.following import follow_hub
from reconverge.hub.registry import HubSettings
from reconverge.integrations import Rule, by_header
from reconverge.integrations.asgi import RateLimitMiddleware
from reconverge.integrations.fastapi import Limits as FastApiLimits
from reconverge.integrations.flask import Limits
from reconverge_sync.redis.hub import RedisHub
from tests.support.fixtures.agents import MakeAgent
from tests.support.kept_contracts import book_at
from tests.support.published import SECRET
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

BY_CUSTOMER = by_header("x-customer")
PLANS = {"free": {"limits": {"calls": "3/hour"}}, "pro": {"limits": {"calls": "20/hour"}}}
DOCUMENT: dict[str, Any] = {
    "plans": PLANS,
    "unknown": "free",
    "customers": {f"customer-{number:05d}": "pro" for number in range(3000)},
}
IN_DOUBT = "ask:5s"
QUOTA = 20


@pytest.fixture(params=["free", "refused"])
def agent(request: pytest.FixtureRequest, redis_server: RedisServer, make_agent: MakeAgent) -> Agent:
    """A node of a fleet whose contracts are at its hub; unknown customers are on a plan, or refused."""
    agent_of_hub = make_agent(redis_server.url, namespace="shop", in_doubt=IN_DOUBT)
    publish(redis_server.url, {**DOCUMENT, "unknown": request.param})
    return agent_of_hub


@pytest.fixture
def contracts(agent: Agent) -> Contracts:
    """Those at the hub, of which the node has read the plans."""
    contracts = Contracts(agent, {"plans": PLANS, "unknown": "free"})
    reader = follow_hub(contracts, secret=SECRET, hold="on-demand")
    agent.start()
    eventually(lambda: 0 == reader.stats().pages_held, "the first version, of which no page of customers is held")
    return contracts


def publish(url: str, document: dict[str, Any]) -> None:
    """Version 1."""

    async def publishing() -> None:
        hub = RedisHub(url, HubSettings("shop", 5.0))
        await book_at(hub).replace(document, author="root")
        await hub.close()

    asyncio.run(publishing())


def check_all_by_contract(answers: Sequence[Any]) -> None:
    """Each answer, the first one too, is by the quota of the customer's own contract, and what fits in is admitted."""
    assert ['"calls@20/3600s";q=20;w=3600'] == sorted({each.headers.get("ratelimit-policy", "") for each in answers})
    assert [200] * QUOTA + [429] == [each.status_code for each in answers]


async def test_fastapi_holds_a_customer_that_the_node_meets_to_its_contract(agent: Agent, contracts: Contracts) -> None:
    """The first of its requests waits for the page as one in doubt does; the loop is not held up meanwhile."""
    application = fastapi.FastAPI()

    @application.get("/")
    async def root() -> dict[str, bool]:
        return {}

    rule = Rule(limits=contracts, key_func=BY_CUSTOMER)
    application.add_middleware(RateLimitMiddleware, agent=agent, rules=[rule])

    async with httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url="http://test") as client:
        one = {"x-customer": "customer-00001"}
        answers = list(await asyncio.gather(*(client.get("/", headers=one) for _ in range(5))))
        while len(answers) <= QUOTA:
            answers.append(await client.get("/", headers=one))
        check_all_by_contract(answers)


async def test_a_dependency_of_fastapi_holds_a_customer_that_the_node_meets_to_its_contract(
    agent: Agent, contracts: Contracts
) -> None:
    """The middleware does so, too."""
    application, limits = fastapi.FastAPI(), FastApiLimits(agent)
    limits.install(application)
    limited = fastapi.Depends(limits(contracts, key_func=BY_CUSTOMER))

    @application.get("/", dependencies=[limited])
    async def root() -> dict[str, bool]:
        return {}

    async with httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url="http://test") as client:
        answers: list[httpx.Response] = []
        while len(answers) <= QUOTA:
            answers.append(await client.get("/", headers={"x-customer": "customer-00003"}))
        check_all_by_contract(answers)


def test_flask_holds_a_customer_that_the_node_meets_to_its_contract(agent: Agent, contracts: Contracts) -> None:
    """A worker's thread waits for the page."""
    application = flask.Flask(__name__)
    limits = Limits(app=application, agent=agent)
    application.add_url_rule("/", "root", limits.limit(contracts, key_func=BY_CUSTOMER)(lambda: ""))
    client = application.test_client()
    answers: list[Any] = []
    while len(answers) <= QUOTA:
        answers.append(client.get("/", headers={"x-customer": "customer-00002"}))

    check_all_by_contract(answers)
