"""Goal: a key function may be written as users of a framework write it, or the message says what to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient as AiohttpClient
from aiohttp.test_utils import TestServer as AiohttpServer

from reconverge import Agent
from reconverge.integrations import Guard, PlainRequest, by_ip
from reconverge.integrations.aiohttp import Limits
from reconverge.integrations.web.request.addresses import Addresses
from reconverge.integrations.wsgi import WsgiRequest
from tests.support.applications.asking import environment_of

TENANT = web.RequestKey("tenant", str)


def test_what_wsgi_does_not_have_is_told() -> None:
    """It has an environment, and no request of a framework."""
    request = WsgiRequest(environment_of("/"), Addresses())

    with pytest.raises(
        AttributeError, match=r"has no 'headers'; its attributes are `method`.*`raw`, the environment of WSGI"
    ):
        request.headers  # noqa: B018  # which raises


@pytest.mark.parametrize(
    "key",
    [
        lambda request: request.remote,
        lambda request: request.headers["X-Tenant"],
        lambda request: request.match_info["shop"],
        lambda request: request[TENANT],
        lambda request: request.query["tenant"],
    ],
    ids=["remote", "headers", "match_info", "what the application keeps", "query"],
)
async def test_what_aiohttps_requests_have_is_there(agent: Agent, key: Callable[[Any], object]) -> None:
    """Each finds what it looks for: two keys of a limit of one, one after the other, and nothing fails."""

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text="yes")

    @web.middleware
    async def keep(request: web.Request, handler: Any) -> web.StreamResponse:
        request[TENANT] = request.headers["X-Tenant"]
        response: web.StreamResponse = await handler(request)
        return response

    app, limits = web.Application(), Limits("1/hour", agent=agent, key_func=key)
    app.router.add_get("/{shop}", answer)
    limits.install(app)
    app.middlewares.insert(0, keep)
    async with AiohttpClient(AiohttpServer(app)) as client:
        asked = [
            await client.get(f"/{tenant}?tenant={tenant}", headers={"X-Tenant": tenant}) for tenant in ("a", "b", "a")
        ]
    statuses, failures = [each.status for each in asked], limits.guard.stats().failures

    assert {} == failures
    assert statuses in ([200, 200, 429], [200, 429, 429])  # of the address, which all share, the second is too many


def test_the_log_names_the_function_that_has_failed_where_requests_are_refused_for_it(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    """The limit's name alone does not tell what to mend, here and where requests go on."""

    def of_tenant(_request: object) -> str:
        raise KeyError("X-Tenant")

    guard = Guard(agent, fail="closed", key_func=by_ip)
    declared = guard.declare("5/minute", name="login")
    broken = Guard(agent, fail="closed", key_func=of_tenant)
    outcome = broken.check(PlainRequest(), [broken.declare("5/minute", name="api")])

    assert guard.check(PlainRequest(client="192.0.2.1"), [declared])
    assert not outcome
    assert {"KeyError": 1} == broken.stats().failures
    (record,) = caplog.records
    assert "api: key_func" in record.getMessage()
    assert "of_tenant" in record.getMessage()
    assert "the request is refused" in record.getMessage()
