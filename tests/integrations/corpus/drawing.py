"""Rules, settings and what happens meanwhile, drawn by number: the same on every machine and with every library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final

from reconverge import Agent, Limit
from reconverge.integrations import Guard, Outcome
from reconverge.limiter.faces.rate_limiter import RateLimiter
from reconverge.testing import ManualClock

START_S: Final = 1_700_000_000.0
LIMITS: Final[Sequence[Any]] = (
    "2/minute",
    "2/minute",
    "999999999000/hour",
    "10/minute; 2/second",
    Limit(2, 60, name='per"cent%'),
    [Limit(6, 60, name="short"), Limit(6, 3600, costs={"GET": 2, "POST": 3}, name="priced")],
    Limit(6, 60, costs={"GET": 2, "HEAD": 3}),
    Limit(3, 60, soft=0.5),
    Limit(3, 60, "sliding-log", count_refused=True),
    Limit(4, 60, "token-bucket", burst=6),
    Limit(2, 86400, "fixed-window"),
)
ODD: Final[Mapping[str, Sequence[Any]]] = {
    "error_message": ("too much", lambda: "made up"),
    "shadow": (False, True),
    "scope": ("web", "a|b%"),
    "per_route": (False, True),
    "per_method": (False, True),
    "methods": (["GET"], ["POST", "OPTIONS"]),
    "paths": (["/"], ["/other"]),
    "exempt_when": (lambda request: request.method == "OPTIONS",),
    "on_breach": (lambda _outcome: None,),
    "settle": ("spent",),
}
"""Settings that few rules have."""
GUARDS: Final[Mapping[str, Sequence[Any]]] = {
    "dialect": ("x-ratelimit", "draft-06", ("ietf-11", "x-ratelimit")),
    "headers_enabled": (False, True),
    "fail": ("open", "closed"),
    "trusted_proxies": (["unix"], ["10.0.0.0/8"], ["10.0.0.0/8", "unix"]),
}
MEANWHILE: Final = (
    "a second",
    "a minute",
    "off",
    "shadow",
    "on",
    "changed",
    "reset",
    "disabled",
    "enabled",
    "no fields",
    "fields",
    "a filter",
)
NAMES: Final = ("first", "second", "third")


class Draw(Random):
    def one(self, pool: Sequence[Any]) -> Any:
        return pool[self.randrange(len(pool))]

    def some(self, pools: Mapping[str, Sequence[Any]], chance: float) -> dict[str, Any]:
        """Each with that chance."""
        return {name: self.one(pool) for name, pool in pools.items() if self.random() < chance}

    def rule(self, keys: Sequence[Callable[..., Any]], odd: Mapping[str, Sequence[Any]] = ODD) -> dict[str, Any]:
        """The settings of a rule; half of them are plain."""
        rule: dict[str, Any] = {"limits": self.one(LIMITS), "key_func": self.one(keys), "cost": self.one((1, 1, 2, 0))}
        rule |= self.some({"missing": ("address", "shared", "refuse", "exempt"), "status": (429, 503)}, 0.5)
        if self.random() < 0.2:
            rule |= {"block_after": "2/minute", "block_for": "2 minutes"}
        return rule | self.some(odd, self.one((0.0, 0.0, 0.12, 0.3)))

    def rules(self, keys: Sequence[Callable[..., Any]], odd: Mapping[str, Sequence[Any]] = ODD) -> list[dict[str, Any]]:
        """One rule or several, each with a name."""
        count = self.one((1, 1, 1, 2, 2, 3))
        return [{"name": name, **self.rule(keys, odd)} for name in NAMES[:count]]

    def settings(self) -> dict[str, Any]:
        return self.some(GUARDS, self.one((0.0, 0.3)))

    def meanwhile(self) -> str:
        """Draws an event before a request, mostly none."""
        return str(self.one(MEANWHILE)) if self.random() < 0.3 else ""


class Stand:
    """An application with limits, a clock, an agent and a guard of its own, that is put through a drawn case."""

    limiters: Sequence[RateLimiter] = ()
    """Of its rules."""

    def __init__(self, common: dict[str, Any]) -> None:
        self.clock = ManualClock(start=START_S)
        self.agent = Agent("memory://", clock=self.clock)
        self.guard = Guard(self.agent, **common)

    def meanwhile(self, what: str) -> None:
        """Let something of `MEANWHILE` happen, or nothing."""
        if what in ("a second", "a minute"):
            self.clock.advance(1.0 if what == "a second" else 61.0)
        elif what in ("disabled", "enabled"):
            self.guard.enabled = what == "enabled"
        elif what in ("no fields", "fields"):
            self.guard.headers_enabled = what == "fields"
        elif what == "a filter":
            self.guard.request_filter(lambda request: request.method == "GET")
        for limiter in self.limiters:
            if what in ("off", "shadow", "on"):
                limiter.switch(what)  # type: ignore[arg-type]
            elif what == "changed":
                limiter.change([replace(limit, quota=limit.quota + 1) for limit in limiter.quotas.values()])
            elif what == "reset":
                for key in (*limiter.control.table.cells, "ada"):
                    limiter.reset(key)

    def said(self, draw: Draw) -> Any:
        """Serves a request: returns the answer, or the error, and the decisions."""
        raise NotImplementedError

    def counted(self) -> Any:
        """Returns the guard's counts, and the use of all keys."""
        usages = [{key: each.usages(key) for key in sorted(each.control.table.cells)} for each in self.limiters]
        totals = {name: (stats.admitted, stats.refused) for name, stats in self.agent.stats().limits.items()}
        return self.guard.stats(), totals, usages


def seen_in(outcome: Outcome | None) -> dict[str, Any] | None:
    """All that an outcome says."""
    if outcome is None:
        return None
    refusal = outcome.refusal
    return {
        "allowed": (outcome.allowed, bool(outcome)),
        "fields": (outcome.fields, outcome.fields_beside(refused=True)),
        "rulings": [(each.name, each.key, each.cost, each.decision, each.charged) for each in outcome.rulings],
        "refusal": None if refusal is None else (refusal.status, dict(refusal.problem), refusal.body, refusal.fields),
        "left": (outcome.unsettled, outcome.holds, outcome.response, outcome.metered),
        "shadows": [(each.name, each.key, each.decision) for each in outcome.shadows],
    }


def run_of(kind: Callable[[Draw], Stand]) -> Callable[[Draw], list[Any]]:
    """Returns a function that runs a case of that kind, request by request."""

    def run(draw: Draw) -> list[Any]:
        stand, said = kind(draw), list[Any]()
        for _ in range(draw.randrange(4, 11)):
            stand.meanwhile(draw.meanwhile())
            said.append(stand.said(draw))
        return [*said, stand.counted()]

    return run
