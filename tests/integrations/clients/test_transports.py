"""Transports for httpx and requests, against a real server."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import httpx
import pytest
import requests
from urllib3.util.retry import Retry

from reconverge import Agent, InvalidCost, InvalidKey, RateLimiter
from reconverge.integrations.httpx import AsyncLimitedTransport, LimitedTransport
from reconverge.integrations.httpx import QuotaUsedUp as HttpxQuotaUsedUp
from reconverge.integrations.misplaced import log_without_effect
from reconverge.integrations.requests import LimitedAdapter
from reconverge.integrations.requests import QuotaUsedUp as RequestsQuotaUsedUp
from tests.support.applications.metered import Metered, metered_server
from tests.support.servers import RedisServer
from tests.support.waiting import eventually


@pytest.fixture
def server() -> Iterator[Metered]:
    with metered_server() as metered:
        yield metered


@pytest.fixture
def limiter() -> RateLimiter:
    return Agent("memory://").limit("api", "3/day", algorithm="token-bucket")


def test_httpx_sends_as_many_calls_as_the_quota_has(server: Metered, limiter: RateLimiter) -> None:
    """The fourth call raises, with the grounds, and never reaches the server."""
    with httpx.Client(transport=LimitedTransport(limiter, timeout=0)) as client:
        for _ in range(3):
            assert 200 == client.get(server.url).status_code
        with pytest.raises(HttpxQuotaUsedUp, match="'api' of 3 has no room") as refused:
            client.get(server.url)

    assert 3 == server.calls
    assert 0 < refused.value.retry_after <= 8 * 3600


def test_a_transport_that_its_client_bypasses_is_logged_at_the_end_of_the_process(
    server: Metered, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a client that lives as long. One whose client or session has sent nothing is no mistake."""
    agent = Agent("memory://")
    limits = [agent.limit(f"late-{number}", "9/minute") for number in range(4)]
    clients = [httpx.Client(transport=LimitedTransport(each), proxy=server.url) for each in limits[:2]]
    sessions = [requests.Session() for _ in limits[2:]]
    for session, each in zip(sessions, limits[2:], strict=True):
        session.mount("127.0.0.1", LimitedAdapter(each))
    clients[0].get(server.url)
    sessions[0].get(server.url)
    log_without_effect()

    assert ["late-0" in caplog.text, "late-1" in caplog.text] == [True, False]
    assert ["late-2" in caplog.text, "late-3" in caplog.text] == [True, False]
    for each in limits:
        each.allow("ada")  # otherwise the others would be logged when they are closed
    for client in clients:
        client.close()
    for session in sessions:
        session.close()


def test_a_transport_whose_limit_no_call_has_used_is_logged_at_its_end(
    server: Metered, caplog: pytest.LogCaptureFixture
) -> None:
    """A client's proxy, and a prefix without a scheme, lead past it. One whose limit was used ends in silence."""
    agent = Agent("memory://")
    used = agent.limit("used", "9/minute")
    with httpx.Client(transport=LimitedTransport(used)) as client:
        client.get(server.url)
    LimitedTransport(used).close()
    assert "no call has used" not in caplog.text

    with httpx.Client(transport=LimitedTransport(agent.limit("proxied", "9/minute")), proxy=server.url) as client:
        client.get(server.url)
    with requests.Session() as session:
        session.mount(server.url.partition("://")[2], LimitedAdapter(agent.limit("mounted", "9/minute")))
        session.get(server.url)
    AsyncLimitedTransport(agent.limit("dropped", "9/minute"))

    assert "LimitedTransport of the limit 'proxied' ends, and no call has used that limit" in caplog.text
    assert "write LimitedTransport(limiter, httpx.HTTPTransport(proxy=...))" in caplog.text
    assert "LimitedAdapter of the limit 'mounted' ends" in caplog.text
    assert "session.mount('https://api.example.com/', adapter)" in caplog.text
    assert "AsyncLimitedTransport of the limit 'dropped' ends" in caplog.text


def test_a_call_that_failed_in_its_key_has_come_to_the_transport(caplog: pytest.LogCaptureFixture) -> None:
    """Its error says what is wrong, and the client's proxy led past nothing; so with a cost, and with each client."""
    wrong: Any = lambda request: request.url  # noqa: E731  # it is no text, and no number
    agent, answers = Agent("memory://"), httpx.MockTransport(lambda _request: httpx.Response(200))
    keyed = LimitedTransport(agent.limit("one", "9/s"), answers, key=wrong)
    priced = LimitedTransport(agent.limit("two", "9/s"), answers, cost=wrong)
    with httpx.Client(transport=keyed) as client, pytest.raises(InvalidKey):
        client.get("http://localhost")
    with httpx.Client(transport=priced) as client, pytest.raises(InvalidCost):
        client.get("http://localhost")
    with requests.Session() as session:
        session.mount("http://", LimitedAdapter(agent.limit("three", "9/s"), cost=wrong))
        with pytest.raises(InvalidCost):
            session.get("http://localhost")

    assert "no call has used" not in caplog.text


def test_an_application_reports_a_refusal_that_only_the_body_shows(limiter: RateLimiter) -> None:
    """The transport leaves bodies to the caller; a report pauses calls as any refusal does, to that host alone."""
    refusal = {"error": {"code": 403, "errors": [{"reason": "rateLimitExceeded"}]}}
    service = httpx.MockTransport(lambda _request: httpx.Response(403, json=refusal))
    transport = LimitedTransport(limiter, service, timeout=0)
    with httpx.Client(transport=transport) as client:
        answer = client.get("https://api.example/files")
        assert "rateLimitExceeded" == answer.json()["error"]["errors"][0]["reason"]
        transport.outgoing.learn("api.example:443", 429, {"Retry-After": "60"})

        with pytest.raises(HttpxQuotaUsedUp, match="the server has refused calls") as refused:
            client.get("https://api.example/files")
        assert 403 == client.get("https://other.example/files").status_code
    assert 59 < refused.value.retry_after <= 60


def test_httpx_does_so_under_asyncio(server: Metered, limiter: RateLimiter) -> None:
    """Five calls at once: three are sent, two are refused."""

    async def five() -> list[object]:
        async with httpx.AsyncClient(transport=AsyncLimitedTransport(limiter, timeout=0)) as client:
            return await asyncio.gather(*(client.get(server.url) for _ in range(5)), return_exceptions=True)

    refused = [answer for answer in asyncio.run(five()) if isinstance(answer, HttpxQuotaUsedUp)]
    assert (2, 3) == (len(refused), server.calls)


def test_requests_sends_as_many_calls_as_the_quota_has(server: Metered, limiter: RateLimiter) -> None:
    """The fourth call raises, as what callers of requests expect, and never reaches the server."""
    with requests.Session() as session:
        session.mount("http://", LimitedAdapter(limiter, timeout=0))
        for _ in range(3):
            assert 200 == session.get(server.url).status_code
        with pytest.raises(requests.RequestException) as refused:
            session.get(server.url)

    assert isinstance(refused.value, RequestsQuotaUsedUp)
    assert 3 == server.calls


def test_every_transport_hears_what_the_server_says(server: Metered, limiter: RateLimiter) -> None:
    """Whichever sent the call, what the server then has left is all that is left."""
    server.fields = {"RateLimit": '"theirs";r=1'}

    async def once() -> None:
        transport = AsyncLimitedTransport(limiter, timeout=0, resource="theirs")
        async with httpx.AsyncClient(transport=transport) as client:
            await client.get(server.url)

    asyncio.run(once())
    assert 1 == limiter.test(server.origin).remaining
    limiter.reset(server.origin)
    with httpx.Client(transport=LimitedTransport(limiter, timeout=0, resource="theirs")) as client:
        client.get(server.url)
    assert 1 == limiter.test(server.origin).remaining
    limiter.reset(server.origin)
    with requests.Session() as session:
        session.mount("http://", LimitedAdapter(limiter, timeout=0, resource="theirs"))
        session.get(server.url)
    assert 1 == limiter.test(server.origin).remaining


class Patient(Retry):
    """A class of retries of the application's own."""


@pytest.mark.parametrize("kind", [Retry, Patient])
@pytest.mark.parametrize("later", [False, True], ids=["as an argument", "set later"])
def test_each_try_of_urllib3_is_charged(server: Metered, limiter: RateLimiter, kind: type[Retry], later: bool) -> None:
    """The quota has three calls, so two retries are sent, and the next raises."""
    server.status = 503
    retries = kind(total=9, status_forcelist=[503], backoff_factor=0, raise_on_status=False)
    adapter = LimitedAdapter(limiter, timeout=0) if later else LimitedAdapter(limiter, timeout=0, max_retries=retries)
    adapter.max_retries = retries
    with requests.Session() as session:
        session.mount("http://", adapter)
        with pytest.raises(RequestsQuotaUsedUp):
            session.get(server.url)

    assert (3, 3) == (server.calls, limiter.usage(server.origin).own)
    assert isinstance(adapter.max_retries, kind)
    state = pickle.dumps(adapter.__getstate__()["max_retries"])
    assert kind is type(pickle.loads(state))  # noqa: S301  # our own


def test_a_call_without_a_limit_is_retried_as_ever(server: Metered, limiter: RateLimiter) -> None:
    """A key of None means that nothing is charged, on any try."""
    server.status = 503
    retries = Retry(total=4, status_forcelist=[503], backoff_factor=0, raise_on_status=False)
    with requests.Session() as session:
        session.mount("http://", LimitedAdapter(limiter, key=lambda _: None, max_retries=retries))
        assert 503 == session.get(server.url).status_code

    assert 5 == server.calls


def test_a_refusal_stops_every_worker(server: Metered, redis_server: RedisServer) -> None:
    """Another process' agent that has never called this server sends nothing either, until the pause is over."""
    with ExitStack() as ends:
        agents = [ends.enter_context(Agent(redis_server.url, policy="strict", sync_interval=0.02)) for _ in range(2)]
        limiters = [agent.limit("api", "20/day") for agent in agents]
        one, other = (
            ends.enter_context(httpx.Client(transport=LimitedTransport(limiter, timeout=5))) for limiter in limiters
        )
        server.status, server.fields = 429, {"Retry-After": "3600"}
        one.get(server.url)

        def is_held() -> bool:
            with suppress(HttpxQuotaUsedUp):
                other.get(server.url)
                return False
            return True

        eventually(is_held, "the other worker knows of the pause")
        calls = server.calls
        with pytest.raises(HttpxQuotaUsedUp, match="the server has refused calls") as refused:
            other.get(server.url)

        assert calls == server.calls
        assert 3500 < refused.value.retry_after <= 3600
        eventually(lambda: 20 - calls == limiters[0].test(server.origin).remaining, "each call is counted once")


def test_a_call_may_have_a_key_and_a_cost_of_its_own_or_none(server: Metered, limiter: RateLimiter) -> None:
    """Calls are told apart by what the application says, and what it lets pass is not counted."""

    def user(request: httpx.Request) -> str | None:
        name: str | None = request.headers.get("user")
        return name

    transport = LimitedTransport(limiter, key=user, cost=lambda _: 3, timeout=0)
    with httpx.Client(transport=transport) as client:
        for _ in range(4):
            client.get(server.url)
        client.get(server.url, headers={"user": "ada"})
        client.get(server.url, headers={"user": "eve"})
        with pytest.raises(HttpxQuotaUsedUp):
            client.get(server.url, headers={"user": "ada"})

    assert 6 == server.calls


def test_workers_share_one_quota(server: Metered, redis_server: RedisServer) -> None:
    """Two workers that never speak to each other send together what the quota has, and no more."""
    with ExitStack() as ends:
        agents = [ends.enter_context(Agent(redis_server.url, policy="strict", sync_interval=0.02)) for _ in range(2)]
        transports = [LimitedTransport(agent.limit("api", "20/day"), timeout=0) for agent in agents]
        clients = [ends.enter_context(httpx.Client(transport=transport)) for transport in transports]

        def send() -> bool:
            for client in clients:
                with suppress(HttpxQuotaUsedUp):
                    client.get(server.url)
            return server.calls >= 20

        eventually(send, "all of the quota is sent")
        for _ in range(100):
            send()

    assert 20 == server.calls
