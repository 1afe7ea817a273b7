"""Goal: what a pipeline decides is what the closer look of its guard decides, for one rule and for several.

Method: two guards with agents of their own on one clock. Of the second, compiled rules are taken away, so it looks
closer at each request. Both get the same rules and the same requests, and all that can be seen of them is compared:
fields, refusals, rulings, what is charged, statistics.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final

import pytest

from reconverge import Agent, Decision, Limit, Limiter
from reconverge.integrations import Guard, Outcome, PlainRequest, Rule
from reconverge.limiter.switches import Switch
from reconverge.testing import ManualClock

START_S: Final = 1_700_000_000.0
ROOMY: Final = PlainRequest(path="/items", client="192.0.2.1", route="/items", headers={"x-key": "ada"})


class BothGuards:
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


@pytest.mark.parametrize("switch", ["off", "shadow", "on"])
def test_a_switch_is_obeyed_from_the_next_request_on(switch: Switch) -> None:
    """A limit that is off or in shadow has to be told otherwise in response fields, and refuses nothing."""
    pair = BothGuards({"limits": "1/minute", "name": "wide"}, {})
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
    pair = BothGuards({"limits": before, "name": "wide"}, {})
    pair.decided(ROOMY, on_a_loop=False)
    for agent in pair.agents:
        agent.limiter("wide").change(after)
    quick, closer = pair.decided(ROOMY, on_a_loop=False)

    assert ";q=7;w=60" in dict(quick.fields)["RateLimit-Policy"]
    assert said(closer) == said(quick)


def test_a_refusal_says_what_holds_at_whichever_node_the_client_comes_again() -> None:
    """That may be another one; here a guard tells all clients the same, which no node would say by itself."""

    class Telling(Guard):
        @staticmethod
        def decision_for_clients(
            decision: Decision, limiter: Limiter, key: str, cost: int, kind: str | None
        ) -> Decision:
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
