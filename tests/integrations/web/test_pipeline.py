"""Goal: what a pipeline decides is what the closer look of its guard decides, for one rule and for several.

Method: two guards with agents of their own on one clock. Of the second, compiled rules are taken away, so it looks
closer at each request. Both get the same rules and the same requests, and all that can be seen of them is compared:
fields, refusals, rulings, what is charged, statistics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconverge import Agent, Decision, Limit, Limiter
from reconverge.integrations import Guard, Outcome, PlainRequest, Rule, by_header, by_ip, by_route, by_user
from reconverge.integrations.web.pipeline import Admitted, RefusedByOne
from reconverge.limit.limit import FIXED_WINDOW, GCRA, LEAKY_BUCKET, SLIDING_LOG, SLIDING_WINDOW, TOKEN_BUCKET
from reconverge.limiter.switches import Switch
from reconverge.testing import ManualClock
from tests.integrations.corpus.of_guard import ITEMS, by_item, fails
from tests.support.effort import tried

START_S: Final = 1_700_000_000.0
ROOMY: Final = PlainRequest(path="/items", client="192.0.2.1", route="/items", headers={"x-key": "ada"})
KEY_FUNCTIONS: Final[Sequence[Any]] = (
    by_ip,
    by_user,
    by_header("x-key"),
    by_route,
    by_item,
    fails,
)
LIMITS: Final[Sequence[str | Limit | list[Limit]]] = (
    "3/minute",
    "2/second",
    "1000000000000/hour",
    "10/minute; 2/second",
    "4/minute; 5/hour; 7/day",
    [Limit(2, 60, name="short"), Limit(4, 3600, TOKEN_BUCKET, burst=6, name="long")],
    [Limit(6, 60, name="short"), Limit(6, 3600, costs={"GET": 2, "POST": 3}, name="priced")],
    Limit(2, 86400, FIXED_WINDOW),
    Limit(4, 60, TOKEN_BUCKET, burst=6),
    Limit(3, 60, GCRA),
    Limit(2, 10, LEAKY_BUCKET),
    Limit(3, 60, SLIDING_LOG, count_refused=True),
    Limit(3, 60, SLIDING_WINDOW, soft=0.5),
    Limit(6, 60, costs={"GET": 2, "POST": 3}),
)
PATHS: Final = (["/items"], ["/items/{number}"], ["/*"], ["/items", "/fails"])
BESIDE: Final = st.fixed_dictionaries(
    {"limits": st.sampled_from(["3/minute", "2/minute; 9/hour"]), "name": st.just("beside")},
    optional={
        "paths": st.sampled_from(PATHS),
        "methods": st.sampled_from([["GET"], ["POST"]]),
        "key_func": st.sampled_from([by_ip, by_item, fails]),
        "shadow": st.booleans(),
    },
)
"""A second rule, which is about the same requests, about some of them, or about others."""
RULES: Final = st.fixed_dictionaries(
    {
        "limits": st.sampled_from(LIMITS),
        "name": st.sampled_from(["wide", "other"]),
        "key_func": st.sampled_from([*KEY_FUNCTIONS, by_item, by_item]),
    },
    optional={
        "missing": st.sampled_from(["address", "shared", "refuse", "exempt"]),
        "scope": st.sampled_from(["web", "a|b", "-"]),
        "per_route": st.booleans(),
        "per_method": st.booleans(),
        "methods": st.sampled_from([["GET"], ["POST", "PUT"]]),
        "paths": st.sampled_from(PATHS),
        "cost": st.sampled_from([1, 2, 0]),
        "shadow": st.booleans(),
        "status": st.sampled_from([429, 503]),
        "error_message": st.sampled_from(["too much", lambda: "made up"]),
    },
)
GUARDS: Final = st.fixed_dictionaries(
    {},
    optional={
        "dialect": st.sampled_from(["ietf-11", "draft-06", "x-ratelimit", ("ietf-11", "x-ratelimit")]),
        "headers_enabled": st.booleans(),
        "fail": st.sampled_from(["open", "closed"]),
        "missing": st.sampled_from(["address", "shared", "refuse", "exempt"]),
        "enabled": st.just(True),
    },
)


class Asked(PlainRequest):
    """A request of whose path `/fails` a router cannot be asked."""

    def seek_templates(self) -> Sequence[str]:
        if self.path == "/fails%":
            raise LookupError("a mistake of a router")
        return self.templates


REQUESTS: Final = st.builds(
    Asked,
    path=st.sampled_from(["/items", "/items/7", "/other", "/ITEMS//", "/fails%"]),
    method=st.sampled_from(["GET", "POST", "HEAD", "BREW"]),
    route=st.sampled_from(["", "/items", "/items/{a|b}"]),
    client=st.sampled_from([None, "192.0.2.1", "192.0.2.2", "2001:db8::1", "no address"]),
    user=st.sampled_from([None, "ada", 7]),
    headers=st.sampled_from([{}, {"x-key": "ada"}, {"x-key": ""}, {"x-key": "a|b"}]),
    raw=st.sampled_from(ITEMS),
)
STEPS: Final = st.lists(st.tuples(REQUESTS, st.sampled_from([0.0, 0.0, 0.4, 1.0, 61.0])), min_size=1, max_size=14)


class Pair:
    """The same rules in a guard that decides by pipelines, and in one that never does."""

    def __init__(self, rule: dict[str, Any], guard: dict[str, Any], beside: dict[str, Any] | None = None) -> None:
        self.clock = ManualClock(start=START_S)
        self.agents = [Agent("memory://", clock=self.clock) for _ in range(2)]
        self.guards = [Guard(agent, **guard) for agent in self.agents]
        rules = [Rule(**each) for each in (rule, beside) if each is not None]
        self.rules = [[guard.declare(each) for each in rules] for guard in self.guards]
        self.guards[1]._compiled.clear()

    def decided(self, request: PlainRequest, *, on_a_loop: bool) -> list[Outcome]:
        pairs = zip(self.guards, self.rules, strict=True)
        if on_a_loop:
            return [asyncio.run(guard.check_async(request, rules)) for guard, rules in pairs]
        return [guard.check(request, rules) for guard, rules in pairs]

    def counted(self) -> list[tuple[Any, Any]]:
        return [(guard.stats(), agent.stats().limits) for guard, agent in zip(self.guards, self.agents, strict=True)]


def said(outcome: Outcome) -> dict[str, Any]:
    """Returns all that can be seen of an outcome."""
    refusal = outcome.refusal
    return {
        "allowed": outcome.allowed,
        "fields": outcome.fields,
        "beside a refusal": outcome.fields_beside(refused=True),
        "rulings": [(each.name, each.key, each.cost, each.decision, each.charged) for each in outcome.rulings],
        "refusal": None if refusal is None else (refusal.status, dict(refusal.problem), refusal.body, refusal.fields),
        "unsettled": outcome.unsettled,
        "shadows": [(each.name, each.key, each.decision) for each in outcome.shadows],
    }


# -------------------------------------------------------------------- the guard


@settings(deadline=None, max_examples=tried(150, long=400), suppress_health_check=[HealthCheck.too_slow])
@given(rule=RULES, beside=st.none() | BESIDE, guard=GUARDS, steps=STEPS, on_a_loop=st.booleans())
def test_both_decide_alike(
    rule: dict[str, Any],
    beside: dict[str, Any] | None,
    guard: dict[str, Any],
    steps: list[tuple[PlainRequest, float]],
    on_a_loop: bool,
) -> None:
    """Of whatever requests come, whatever the rules: what is said, charged, counted and given back."""
    pair = Pair(rule, guard, beside)
    keys = set[tuple[str, str]]()
    for request, pause_s in steps:
        quick, closer = pair.decided(request, on_a_loop=on_a_loop)
        keys |= {(each.name, each.key) for each in closer.rulings}

        assert said(closer) == said(quick)

        if len(keys) % 3 == 2:  # something further on has refused the request
            quick.take_back()
            closer.take_back()
        pair.clock.advance(pause_s)
    counted = pair.counted()
    used = [[agent.limiter(name).usages(key) for name, key in sorted(keys)] for agent in pair.agents]

    assert counted[1] == counted[0]
    assert used[1] == used[0]


@pytest.mark.parametrize("switch", ["off", "shadow", "on"])
def test_a_switch_is_obeyed_from_the_next_request_on(switch: Switch) -> None:
    """A limit that is off or in shadow has to be told otherwise in response fields, and refuses nothing."""
    pair = Pair({"limits": "1/minute", "name": "wide"}, {})
    for request in (ROOMY, ROOMY):
        pair.decided(request, on_a_loop=False)
    for agent in pair.agents:
        agent.limiter("wide").switch(switch)
    quick, closer = pair.decided(ROOMY, on_a_loop=False)

    assert (switch != "on") is quick.allowed
    assert said(closer) == said(quick)


@pytest.mark.parametrize("beside", ["", "; 9/hour"])
def test_a_limit_that_has_changed_is_told_with_its_new_policy(beside: str) -> None:
    """The fields prepared of the former one are not sent any more, also of the second of two quotas."""
    before, after = [Limit.parse_all(f"{quota}/minute{beside}")[::-1] for quota in (5, 7)]
    pair = Pair({"limits": before, "name": "wide"}, {})
    pair.decided(ROOMY, on_a_loop=False)
    for agent in pair.agents:
        agent.limiter("wide").change(after)
    quick, closer = pair.decided(ROOMY, on_a_loop=False)

    assert ";q=7;w=60" in dict(quick.fields)["RateLimit-Policy"]
    assert said(closer) == said(quick)


@pytest.mark.parametrize(
    ("settings", "beside"),
    [
        ({"per_route": True}, None),
        ({"scope": "web"}, None),
        ({"paths": ["/items"]}, None),
        ({"limits": "1/minute; 9/hour"}, None),
        ({}, {"limits": "9/hour", "paths": ["/other"]}),
        ({"methods": ["POST"]}, {"limits": "1/minute", "paths": ["/items"]}),
        ({"limits": "9/minute"}, {"limits": "2/minute", "key_func": by_ip}),
    ],
    ids=[
        "by route",
        "in a scope",
        "of a path",
        "of two quotas",
        "beside one of another path",
        "beside one of a method",
        "two about the same",
    ],
)
def test_plain_rules_are_decided_by_a_pipeline(settings: dict[str, Any], beside: dict[str, Any] | None) -> None:
    """Else the comparisons above would compare nothing: admitted, and refused."""
    pair = Pair({"limits": "1/minute", "name": "wide", "key_func": by_header("x-key"), **settings}, {}, beside)
    two = beside is not None and "paths" not in beside  # one of which refuses: the other is looked at, too
    if two:
        pair.decided(ROOMY, on_a_loop=False)  # new keys take a closer look
    admitted, refused = (pair.decided(ROOMY, on_a_loop=False) for _ in range(2))

    assert [Admitted, Outcome] == [type(each) for each in admitted]
    assert [Outcome if two else RefusedByOne, Outcome] == [type(each) for each in refused]
    assert said(refused[1]) == said(refused[0])


def test_a_refusal_says_what_holds_at_whichever_node_the_client_comes_again() -> None:
    """That may be another one; here a guard tells all clients the same, which no node would say by itself."""

    class Telling(Guard):
        @staticmethod
        def told_to_clients(decision: Decision, limiter: Limiter, key: str, cost: int, kind: str | None) -> Decision:
            return replace(decision, remaining=7, retry_after=1000.5)

    guard = Telling(Agent("memory://", clock=ManualClock(start=START_S)))
    rule = guard.declare(Rule(limits="1/minute", name="wide"))
    guard.check(ROOMY, [rule])
    fast_path = said(guard.check(ROOMY, [rule]))
    guard._compiled.clear()
    guard._pipelines.clear()

    assert ("RateLimit", '"wide";r=7;t=1001') in fast_path["fields"]
    assert said(guard.check(ROOMY, [rule])) == fast_path


def test_a_key_function_thatfails_is_asked_once() -> None:
    """The general way goes on with what the fast path has found: a key function may cost something."""
    calls = list[object]()

    def key(request: Any) -> str:
        calls.append(request)
        raise LookupError

    guard = Guard(Agent("memory://"))
    guard.check(ROOMY, [guard.declare(Rule(limits="5/minute", key_func=key))])

    assert 1 == len(calls)
