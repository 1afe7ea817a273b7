"""Describes how well-known servers state their limits: the statuses of refusals, and the fields with numbers.

`ANY_SERVER` understands the fields that are common. The others are made from the documentation of one service each.
"""

# Sources, as of November 2026: docs.github.com "Rate limits for the REST API"; platform.openai.com "Rate limits";
# docs.anthropic.com "Rate limits" and "Errors"; docs.discord.com "Rate limits"; docs.stripe.com "Rate limits".

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from reconverge.settings import check_seconds

PAUSE_MAX_S: Final = 86_400.0


class NumberFields(NamedTuple):
    """The names of the fields with the numbers of one quota."""

    remaining: str
    reset: str
    limit: str
    name: str = ""
    """The quota's name; empty for numbers that have none."""
    name_field: str = ""
    """The field with the quota's name, if it varies."""
    gradual: bool = False
    """Whether the quota fills up gradually, so that `reset` is the time when it is full, and a part is available
    earlier."""


class RefusalMark(NamedTuple):
    """A sign of one kind of refusal: the field `field` has a value that begins with `begins`, in any case."""

    field: str
    begins: str


@dataclass(frozen=True, slots=True)
class Server:
    """The way in which one server states its limits, by statuses and header fields.

    Args:
        name: the name of the service, for messages.
        numbers: the fields with numbers, beside `RateLimit` and `RateLimit-Policy`, which are always read.
        refuses: the statuses of a refusal.
        may_refuse: statuses that are a refusal if the response names a time to wait, or a quota with nothing left.
        pause_s: the seconds to pause after a refusal that names no time.
        stops_all: marks of a refusal that stops the calls with all keys.
        stops_operation: marks of a refusal that stops only calls of the same operation (method and path).
        operation_parts: how many segments of a path, from the left, identify an operation; None for all.
    """

    name: str
    numbers: tuple[NumberFields, ...] = ()
    refuses: frozenset[int] = frozenset({429})
    may_refuse: frozenset[int] = frozenset({403, 503, 529})
    pause_s: float = 1.0
    stops_all: tuple[RefusalMark, ...] = ()
    stops_operation: tuple[RefusalMark, ...] = ()
    operation_parts: int | None = None

    def __post_init__(self) -> None:
        check_seconds("pause_s", self.pause_s, 0.0, PAUSE_MAX_S)

    def __repr__(self) -> str:
        return f"<Server {self.name}>"

    def operation(self, method: str, path: str) -> str:
        """Returns the operation of a call, such as `POST /v1/charges`."""
        segments = [segment for segment in path.partition("?")[0].split("/") if segment]
        return f"{method.upper()} /{'/'.join(segments[: self.operation_parts])}"


def _x_ratelimit(name_field: str = "", reset: str = "X-RateLimit-Reset") -> NumberFields:
    return NumberFields("X-RateLimit-Remaining", reset, "X-RateLimit-Limit", name_field=name_field)


def _of_openai(name: str, *, gradual: bool) -> NumberFields:
    return NumberFields(
        f"x-ratelimit-remaining-{name}",
        f"x-ratelimit-reset-{name}",
        f"x-ratelimit-limit-{name}",
        name=name,
        gradual=gradual,
    )


def _of_anthropic(name: str) -> NumberFields:
    begins = f"anthropic-ratelimit-{name}"
    return NumberFields(f"{begins}-remaining", f"{begins}-reset", f"{begins}-limit", name=name, gradual=True)


ANY_SERVER: Final = Server(
    "any server",
    numbers=(
        NumberFields("RateLimit-Remaining", "RateLimit-Reset", "RateLimit-Limit"),
        _x_ratelimit("X-RateLimit-Resource"),
        _of_openai("requests", gradual=False),
        _of_openai("tokens", gradual=False),
    ),
)
GITHUB: Final = Server(
    "GitHub",
    numbers=(_x_ratelimit("X-RateLimit-Resource"),),
    may_refuse=frozenset({403}),
    pause_s=60.0,  # "wait for at least one minute"
)
"""GitHub's API. `X-RateLimit-Resource` names the quota: core, search, code_search, graphql and others."""
OPENAI: Final = Server(
    "OpenAI",
    numbers=tuple(_of_openai(name, gradual=True) for name in ("requests", "tokens")),
    may_refuse=frozenset({503}),
)
"""OpenAI's API, whose quotas are called requests and tokens."""
ANTHROPIC: Final = Server(
    "Anthropic",
    numbers=tuple(_of_anthropic(name) for name in ("requests", "tokens", "input-tokens", "output-tokens")),
    may_refuse=frozenset({503, 529}),
)
"""Anthropic's API, whose quotas are called requests, tokens, input-tokens and output-tokens."""
DISCORD: Final = Server(
    "Discord",
    numbers=(_x_ratelimit("X-RateLimit-Bucket", "X-RateLimit-Reset-After"),),
    may_refuse=frozenset({503}),
    stops_all=(RefusalMark("X-RateLimit-Global", "true"), RefusalMark("X-RateLimit-Scope", "global")),
    stops_operation=(RefusalMark("X-RateLimit-Scope", ""), RefusalMark("X-RateLimit-Bucket", "")),
    operation_parts=5,  # api/v10/channels/ID/messages
)
"""Discord's API. A refusal stops one route (with its channel, guild or webhook); a global refusal stops all calls."""
STRIPE: Final = Server(
    "Stripe",
    may_refuse=frozenset({503}),
    stops_operation=(
        RefusalMark("Stripe-Rate-Limited-Reason", "endpoint-"),
        RefusalMark("Stripe-Rate-Limited-Reason", "resource-"),
    ),
    operation_parts=2,  # v1/charges
)
"""Stripe's API. A refusal stops all calls of the account, or one endpoint if `Stripe-Rate-Limited-Reason` names it."""
