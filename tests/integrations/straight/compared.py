"""The straight way beside the general one: a guard that goes the general way, and what both are put through.

What decides by a scope, by an environment or as a dependency is compared with the general way in the same manner: two
applications are asked the same by turns, and in between the same happens to both. What differs between the protocols
stands with their tests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import strategies as st

from reconverge import Agent, Limit
from reconverge.integrations import Guard, Outcome, Rule
from reconverge.integrations.web.bound_rule import Declared
from reconverge.integrations.web.rules import Limits
from reconverge.limiter.limiter import Limiter
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
)
ODD: Final[dict[str, st.SearchStrategy[Any]]] = {
    "name": st.sampled_from(["wide", "l\u00e4nge"]),
    "error_message": st.sampled_from(["too much", lambda: "made up"]),
    "shadow": st.booleans(),
    "scope": st.just("web"),
    "per_route": st.booleans(),
    "per_method": st.booleans(),
    "methods": st.sampled_from([["GET"], ["POST", "OPTIONS"]]),
    "paths": st.sampled_from([["/"], ["/other"]]),
    "exempt_when": st.just(lambda request: request.method == "OPTIONS"),
    "on_breach": st.just(lambda _outcome: None),
    "settle": st.just("spent"),
}
"""Of a rule about which more has to be known, as a rule."""


def plain(key_functions: Sequence[Any]) -> dict[str, st.SearchStrategy[Any]]:
    """Of a rule that is decided straight, unless its limit has prices."""
    return {
        "limits": st.sampled_from(LIMITS),
        "key_func": st.sampled_from(key_functions),
        "missing": st.sampled_from(["address", "shared", "refuse", "exempt"]),
        "cost": st.sampled_from([1, 1, 2, 0]),
    }


def with_one_of(
    odd: dict[str, st.SearchStrategy[Any]], rule: dict[str, st.SearchStrategy[Any]]
) -> st.SearchStrategy[dict[str, Any]]:
    """Rules that have one more thing each."""
    return st.sampled_from(list(odd)).flatmap(lambda name: st.fixed_dictionaries({**rule, name: odd[name]}))


BANS: Final = st.sampled_from([{}, {"block_after": "2/minute", "block_for": "2 minutes"}])
GUARDS: Final = st.just(dict[str, Any]()) | st.fixed_dictionaries(
    {},
    optional={
        "dialect": st.sampled_from(["x-ratelimit", ("ietf-11", "x-ratelimit")]),
        "headers_enabled": st.booleans(),
        "fail": st.sampled_from(["open", "closed"]),
        "trusted_proxies": st.sampled_from([["unix"], ["10.0.0.0/8"], ["10.0.0.0/8", "unix"]]),
    },
)
ALL_BETWEEN: Final = (
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
BETWEEN: Final = st.sampled_from(["", *ALL_BETWEEN])


class General(Guard):
    """A guard all of whose rules go the general way."""

    def declare(self, rule: Rule | Limits, *, owner: object = None, name: str | None = None) -> Declared:
        """Leave no rule that is decided straight."""
        declared = super().declare(rule, owner=owner, name=name)
        self._straight.clear()
        return declared


class Compared:
    """One of two applications that are compared, with a clock, an agent and a guard of its own."""

    limiters: Sequence[Limiter]
    """Of its rules."""

    def __init__(self, guard: type[Guard], common: dict[str, Any]) -> None:
        self.clock = ManualClock(start=START_S)
        self.agent = Agent("memory://", clock=self.clock)
        self.guard = guard(self.agent, **common)

    def meanwhile(self, what: str) -> None:
        """Let happen what may between two requests; `what` is one of `ALL_BETWEEN`, or nothing."""
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
                for key in (*limiter.table.cells, "ada"):
                    limiter.reset(key)

    def counted(self) -> Any:
        """What guard and agent have counted, and what all keys have used."""
        usages = [{key: each.usages(key) for key in sorted(each.table.cells)} for each in self.limiters]
        return self.guard.stats(), self.agent.stats().limits, usages


def seen_in(outcome: Outcome) -> dict[str, Any]:
    """All that an outcome says."""
    refusal = outcome.refusal
    return {
        "allowed": (outcome.allowed, bool(outcome)),
        "fields": (outcome.fields, outcome.fields_beside(refused=True)),
        "rulings": [(each.name, each.key, each.cost, each.decision, each.charged) for each in outcome.rulings],
        "refusal": None if refusal is None else (refusal.status, dict(refusal.problem), refusal.body, refusal.fields),
        "left": (outcome.unsettled, outcome.holds, outcome.response, outcome.metered),
        "shadows": [(each.name, each.key, each.decision) for each in outcome.shadows],
    }


def made_of(monkeypatch: pytest.MonkeyPatch, *kinds: type) -> list[Any]:
    """The objects of some kinds that are made from here on, while the test goes on."""
    made = list[Any]()

    def noted(make: Callable[..., None]) -> Callable[..., None]:
        def note(self: object, *args: Any, **kwargs: Any) -> None:
            made.append(self)
            make(self, *args, **kwargs)

        return note

    for kind in kinds:
        monkeypatch.setattr(kind, "__init__", noted(kind.__init__))  # type: ignore[misc]  # it is put back by the same name
    return made
