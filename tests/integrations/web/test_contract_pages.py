"""Goal: a request is held to its customer's own contract, also where the node has never met the customer before.

Method: FastAPI and Flask with contracts at a real Redis, of which the nodes hold no page when the first request comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import fastapi
import flask
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
from tests.support.applications.asking import Answer, asgi_answer, ask_asgi, ask_wsgi, http_scope, statuses
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

    async def publishing() -> None:
        hub = RedisHub(url, HubSettings("shop", 5.0))
        await book_at(hub).replace(document, author="root")
        await hub.close()

    asyncio.run(publishing())


def check_all_by_contract(answers: Sequence[Answer]) -> None:
    """Each answer, the first one too, is by the quota of the customer's own contract, and what fits in is admitted."""
    assert ['"calls@20/3600s";q=20;w=3600'] == sorted({each.headers.get("ratelimit-policy", "") for each in answers})
    assert [200] * QUOTA + [429] == statuses(answers)


def root() -> dict[str, bool]:
    return {}


async def test_fastapi_holds_a_customer_that_the_node_meets_to_its_contract(agent: Agent, contracts: Contracts) -> None:
    """The first of its requests waits for the page as one in doubt does; the loop is not held up meanwhile."""
    application = fastapi.FastAPI()

    application.get("/")(root)
    rule = Rule(limits=contracts, key_func=BY_CUSTOMER)
    application.add_middleware(RateLimitMiddleware, agent=agent, rules=[rule])

    def one() -> Awaitable[Answer]:
        return asgi_answer(application, http_scope("/", x_customer="customer-00001"))

    answers = list(await asyncio.gather(*(one() for _ in range(5))))
    while len(answers) <= QUOTA:
        answers.append(await one())
    check_all_by_contract(answers)


def fastapi_dependency(agent: Agent, contracts: Contracts) -> list[Answer]:
    application, limits = fastapi.FastAPI(), FastApiLimits(agent)
    limits.install(application)
    application.get("/", dependencies=[fastapi.Depends(limits(contracts, key_func=BY_CUSTOMER))])(root)
    return ask_asgi(application, times=QUOTA + 1, x_customer="customer-00002")


def flask_view(agent: Agent, contracts: Contracts) -> list[Answer]:
    application = flask.Flask(__name__)
    limits = Limits(app=application, agent=agent)
    application.add_url_rule("/", "root", limits.limit(contracts, key_func=BY_CUSTOMER)(lambda: ""))
    return ask_wsgi(application, times=QUOTA + 1, x_customer="customer-00002")


@pytest.mark.parametrize("ask", [fastapi_dependency, flask_view])
def test_a_limit_of_a_view_holds_a_customer_that_the_node_meets_to_its_contract(
    agent: Agent, contracts: Contracts, ask: Callable[[Agent, Contracts], list[Answer]]
) -> None:
    """As the middleware does; under Flask a worker's thread waits for the page."""
    check_all_by_contract(ask(agent, contracts))
