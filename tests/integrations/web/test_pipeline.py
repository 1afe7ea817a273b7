"""Goal: what a pipeline decides is what the closer look of its guard decides.

Method: a request is decided by both, as compiled rules are taken away in between. Rules, switches and changes of all
kinds are in the corpus.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from reconverge import Agent, Decision, Limiter
from reconverge.integrations import Guard, PlainRequest, Rule
from reconverge.testing import ManualClock
from tests.integrations.corpus.drawing import START_S, seen_in

ROOMY: Final = PlainRequest(path="/items", client="192.0.2.1", route="/items", headers={"x-key": "ada"})


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
    fast_path = seen_in(guard.check(ROOMY, [rule]))
    guard._compiled.clear()
    guard._pipelines.clear()

    assert fast_path is not None
    assert ("RateLimit", '"wide";r=7;t=1001') in fast_path["fields"][0]
    assert seen_in(guard.check(ROOMY, [rule])) == fast_path


def test_a_key_function_that_fails_is_asked_once() -> None:
    """The general way goes on with what the fast path has found: a key function may cost something."""
    calls = list[object]()

    def key(request: Any) -> str:
        calls.append(request)
        raise LookupError

    guard = Guard(Agent("memory://"))
    guard.check(ROOMY, [guard.declare(Rule(limits="5/minute", key_func=key))])

    assert 1 == len(calls)


@pytest.mark.parametrize("limits", ["9/minute; 4/hour", "4/hour; 90/minute; 900/day", "4/hour; 9/minute; 7/day"])
def test_the_fields_of_several_quotas_are_those_that_the_guard_writes(limits: str) -> None:
    """Also if another quota than the first binds, and after one of them has changed."""
    guard = Guard(Agent("memory://", clock=ManualClock(start=START_S)))
    declared = guard.declare(Rule(limits=limits))
    assert declared.only_limiter is not None
    *_, last = declared.only_limiter.control.tables

    for _ in range(4):
        outcome = guard.check(ROOMY, [declared])
        last.hit(outcome.key_of() or "")  # another request comes before the response
        assert guard.fields(outcome.rulings) == outcome.fields != []
        last.change(replace(last.limit, quota=last.limit.quota + 5))
        assert guard.fields(outcome.rulings) == outcome.fields
