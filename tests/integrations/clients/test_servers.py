"""Responses as five services document them: each pauses what it names, and lowers the quota that it names.

The fields are those of the services' documentation: docs.github.com "Rate limits for the REST API",
platform.openai.com "Rate limits", docs.anthropic.com "Rate limits" and "Errors", docs.discord.com "Rate limits",
docs.stripe.com "Rate limits".
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from httpx import Headers

from reconverge import Agent, RateLimiter
from reconverge.integrations.clients.outgoing import Outgoing
from reconverge.integrations.clients.server_fields import Heard, Numbers, heard
from reconverge.integrations.servers import ANTHROPIC, DISCORD, GITHUB, OPENAI, STRIPE, Server
from reconverge.testing import ManualClock

NOON = 1_800_000_000.0


def later(seconds: float) -> str:
    return str(int(NOON + seconds))


def at(seconds: float) -> str:
    return datetime.fromtimestamp(NOON + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


GITHUB_SEARCH = {
    "x-ratelimit-limit": "30",
    "x-ratelimit-remaining": "18",
    "x-ratelimit-used": "12",
    "x-ratelimit-reset": later(48),
    "x-ratelimit-resource": "search",
}
GITHUB_USED_UP = {**GITHUB_SEARCH, "x-ratelimit-remaining": "0", "x-ratelimit-used": "30"}
OPENAI_ANSWER = {
    "x-ratelimit-limit-requests": "60",
    "x-ratelimit-limit-tokens": "150000",
    "x-ratelimit-remaining-requests": "59",
    "x-ratelimit-remaining-tokens": "149984",
    "x-ratelimit-reset-requests": "1s",
    "x-ratelimit-reset-tokens": "6m0s",
}
ANTHROPIC_ANSWER = {
    "anthropic-ratelimit-requests-limit": "50",
    "anthropic-ratelimit-requests-remaining": "49",
    "anthropic-ratelimit-requests-reset": at(2),
    "anthropic-ratelimit-input-tokens-limit": "30000",
    "anthropic-ratelimit-input-tokens-remaining": "12000",
    "anthropic-ratelimit-input-tokens-reset": at(36),
}
DISCORD_ANSWER = {
    "X-RateLimit-Limit": "5",
    "X-RateLimit-Remaining": "4",
    "X-RateLimit-Reset": f"{later(1)}.123",
    "X-RateLimit-Reset-After": "1.123",
    "X-RateLimit-Bucket": "abcd1234",
}
DISCORD_REFUSAL = {**DISCORD_ANSWER, "X-RateLimit-Remaining": "0", "Retry-After": "65", "X-RateLimit-Scope": "user"}


@pytest.mark.parametrize(
    ("server", "status", "fields", "expected"),
    [
        (GITHUB, 200, GITHUB_SEARCH, Heard(numbers=(Numbers(18, "search", 30, reset=48),))),
        (GITHUB, 403, GITHUB_USED_UP, Heard(48, "quota", (Numbers(0, "search", 30, reset=48),))),
        (GITHUB, 403, {"retry-after": "60"}, Heard(60)),
        (
            GITHUB,
            403,
            {**GITHUB_SEARCH, "retry-after": "60"},
            Heard(60, "quota", (Numbers(18, "search", 30, reset=48),)),
        ),
        (GITHUB, 429, {}, Heard(60)),
        (GITHUB, 403, {}, Heard()),
        (
            OPENAI,
            200,
            OPENAI_ANSWER,
            Heard(
                numbers=(
                    Numbers(59, "requests", 60, reset=1, gradual=True),
                    Numbers(149_984, "tokens", 150_000, reset=360, gradual=True),
                )
            ),
        ),
        (OPENAI, 429, {"retry-after-ms": "20493", "retry-after": "21"}, Heard(20.493)),
        (OPENAI, 429, {"retry-after": "7"}, Heard(7)),
        (
            ANTHROPIC,
            200,
            ANTHROPIC_ANSWER,
            Heard(
                numbers=(
                    Numbers(49, "requests", 50, reset=2, gradual=True),
                    Numbers(12_000, "input-tokens", 30_000, reset=36, gradual=True),
                )
            ),
        ),
        (ANTHROPIC, 429, {"retry-after": "17"}, Heard(17)),
        (ANTHROPIC, 529, {"retry-after": "5"}, Heard(5)),
        (ANTHROPIC, 529, {}, Heard()),
        (DISCORD, 200, DISCORD_ANSWER, Heard(numbers=(Numbers(4, "abcd1234", 5, reset=1.123),))),
        (DISCORD, 429, DISCORD_REFUSAL, Heard(65, "operation", (Numbers(0, "abcd1234", 5, reset=1.123),))),
        (DISCORD, 429, {"Retry-After": "3", "X-RateLimit-Scope": "shared"}, Heard(3, "operation")),
        (
            DISCORD,
            429,
            {"Retry-After": "65", "X-RateLimit-Global": "true", "X-RateLimit-Scope": "global"},
            Heard(65, "all"),
        ),
        (DISCORD, 429, {"Retry-After": "600"}, Heard(600)),
        (STRIPE, 429, {"Stripe-Rate-Limited-Reason": "global-rate"}, Heard(1)),
        (STRIPE, 429, {"Stripe-Rate-Limited-Reason": "endpoint-rate"}, Heard(1, "operation")),
        (STRIPE, 429, {"Stripe-Rate-Limited-Reason": "endpoint-concurrency"}, Heard(1, "operation")),
        (STRIPE, 429, {"Stripe-Rate-Limited-Reason": "resource-specific"}, Heard(1, "operation")),
    ],
)
def test_a_documented_response_is_understood(
    server: Server, status: int, fields: dict[str, str], expected: Heard
) -> None:
    """A pause with whom it concerns, and the numbers of each quota."""
    assert expected == heard(status, Headers(fields), now=NOON, server=server)


@pytest.fixture
def limiter() -> RateLimiter:
    return Agent("memory://", clock=ManualClock(start=NOON)).limit("api", "5000/hour", algorithm="sliding-log")


def goes(outgoing: Outgoing, path: str, key: str = "server", method: str = "GET") -> bool:
    return bool(outgoing.admit_blocking(key, 1, method, path))


def test_a_refusal_of_another_quota_stops_that_operation_alone(limiter: RateLimiter) -> None:
    """GitHub has no searches left: other calls of the same key go on."""
    outgoing = Outgoing(limiter, timeout=0, server=GITHUB, resource="core")
    outgoing.learn("server", 403, Headers(GITHUB_USED_UP), "GET", "/search/code")

    assert not goes(outgoing, "/search/code")
    assert goes(outgoing, "/repos/a/b")


def test_a_refused_route_of_discord_stops_that_route_alone(limiter: RateLimiter) -> None:
    """The same route of another channel goes, and every other route."""
    outgoing = Outgoing(limiter, timeout=0, server=DISCORD)
    outgoing.learn("server", 429, Headers(DISCORD_REFUSAL), "POST", "/api/v10/channels/1/messages")

    assert not goes(outgoing, "/api/v10/channels/1/messages", method="POST")
    assert goes(outgoing, "/api/v10/channels/2/messages", method="POST")
    assert goes(outgoing, "/api/v10/channels/1/messages")


def test_a_global_refusal_of_discord_stops_all_keys(limiter: RateLimiter) -> None:
    """The bot's limit is used up, whichever key a call has."""
    outgoing = Outgoing(limiter, timeout=0, server=DISCORD)
    outgoing.learn("guild 1", 429, Headers({"Retry-After": "65", "X-RateLimit-Global": "true"}), "GET", "/api/v10/a")

    assert not goes(outgoing, "/api/v10/b", key="guild 2")


def test_a_refused_endpoint_of_stripe_stops_that_endpoint_alone(limiter: RateLimiter) -> None:
    """With every object behind it."""
    outgoing = Outgoing(limiter, timeout=0, server=STRIPE)
    refusal = Headers({"Stripe-Rate-Limited-Reason": "endpoint-rate"})
    outgoing.learn("server", 429, refusal, "POST", "/v1/charges/ch_1/capture")

    assert not goes(outgoing, "/v1/charges/ch_2/capture", method="POST")
    assert goes(outgoing, "/v1/customers", method="POST")


@pytest.mark.parametrize(
    ("server", "fields"),
    [
        (OPENAI, {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "24h"}),
        (ANTHROPIC, {"anthropic-ratelimit-requests-remaining": "0", "anthropic-ratelimit-requests-reset": at(86_400)}),
    ],
    ids=["OpenAI", "Anthropic"],
)
def test_a_refusal_by_a_quota_that_fills_up_gradually_stops_calls_until_the_time_that_it_names(
    limiter: RateLimiter, server: Server, fields: dict[str, str]
) -> None:
    """And not until all of the quota is back, because a part is back by then."""
    outgoing = Outgoing(limiter, timeout=0, server=server, resource="requests")

    outgoing.learn("server", 429, Headers({"retry-after": "2", **fields}), "POST", "/v1/messages")

    refused = outgoing.admit_blocking("server", 1, "POST", "/v1/messages")
    assert refused is not None
    assert 0 < refused.retry_after <= 2
    assert 5000 == limiter.test("server").remaining


def test_a_service_lowers_the_quota_that_the_caller_maps(limiter: RateLimiter) -> None:
    """And no other: tokens left are no requests left."""
    outgoing = Outgoing(limiter, timeout=0, server=ANTHROPIC, resource="requests")
    assert goes(outgoing, "/v1/messages")

    outgoing.learn("server", 200, Headers(ANTHROPIC_ANSWER), "POST", "/v1/messages")

    assert (49, 1) == (limiter.test("server").remaining, outgoing.not_placed)
