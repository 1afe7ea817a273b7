"""Goal: what a pipeline decides is what the closer look of its guard decides.

Method: a request is decided by both, as compiled rules are taken away in between. Rules, switches and changes of all
kinds are in the corpus.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

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
