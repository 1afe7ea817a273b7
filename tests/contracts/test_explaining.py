"""Goal: what a customer is told of its limits is so, complete, and plain English.

Method: real limiters on a clock of the tests decide; the sentence is compared as a whole.
"""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from reconverge import Agent, Limit
from reconverge.contracts.explaining import (
    SENTENCE_LIMITS_MAX,
    Explanation,
    LimitStanding,
    explained,
    refill_s,
    sentence_of,
    written_wait,
)
from reconverge.contracts.model import REFUSED
from reconverge.contracts.terms import Term
from reconverge.decision import Decision, Usage
from reconverge.testing import ManualClock

START_S = 1_700_000_000.0


@pytest.fixture
def clock() -> ManualClock:
    """A clock of the test's own, at the beginning of a second and not of a minute."""
    return ManualClock(start=START_S)


@pytest.fixture
def agent(clock: ManualClock) -> Agent:
    """An agent that is alone, and so exact."""
    return Agent("memory://", clock=clock)


def standing(
    agent: Agent, text: str, used: int = 0, *, name: str = "requests", by: tuple[str, ...] = ("customer",), **more: Any
) -> LimitStanding:
    """How a customer stands with a limit of which it has used so much; `switch` and `former` are not of the limit."""
    former, switch = more.pop("former", False), more.pop("switch", "on")
    limit = Limit.parse(text, **more)
    limiter = agent.limit(f"{name}.{len(agent.stats().limits)}", limit, switch=switch)
    for _ in range(used):
        limiter.hit("acme")
    return LimitStanding(Term(name, limit, by, "free", (), former), limiter.test("acme"), limiter.usage("acme"))


def said(*standings: LimitStanding, customer: str = "acme", plan: str = "free") -> str:
    """The sentence."""
    return sentence_of(customer, plan, standings)


def test_a_customer_that_has_used_up_a_limit_is_told_when_it_can_go_on(agent: Agent, clock: ManualClock) -> None:
    """Of a second of which 0.6 s have gone by, after 0.4 s."""
    limited = standing(agent, "50/second", 50, algorithm="fixed-window")
    clock.advance(0.6)
    limiter = agent.limit("requests.0", limited.term.limit)
    later = LimitStanding(limited.term, limiter.test("acme"), limiter.usage("acme"))

    assert "acme may send 50 requests a second and has sent 50; it can go on in 0.4 s." == said(later)


def test_a_customer_with_room_is_told_what_it_has_used(agent: Agent) -> None:
    """And that it can go on."""
    assert "acme may send 50 requests a second and has sent 12; it can go on now." == said(
        standing(agent, "50/second", 12)
    )


def test_of_several_limits_those_that_refuse_are_told_the_one_to_wait_for_longest_first(agent: Agent) -> None:
    """A limit with room is left out, for it is not why the customer is refused."""
    fixed: dict[str, Any] = {"algorithm": "fixed-window"}
    minute, second = standing(agent, "3/minute", 3, **fixed), standing(agent, "2/second", 2, **fixed)
    hour = standing(agent, "9/hour", 1, **fixed)

    assert (
        "acme may send 3 requests a minute and has sent 3, and it may send 2 requests a second and has sent 2; "
        "it can go on in 40 s." == said(second, hour, minute)
    )


def test_of_several_limits_with_room_the_tightest_is_told_first(agent: Agent) -> None:
    """By the part that is left."""
    assert (
        "acme may send 100 requests an hour and has sent 80, and it may send 10 requests a day and has sent 1; "
        "it can go on now." == said(standing(agent, "10/day", 1), standing(agent, "100/hour", 80))
    )


@pytest.mark.parametrize(
    ("more", "ending"), [(0, ""), (1, ", and 1 more of its limits refuses"), (2, ", and 2 more of its limits refuse")]
)
def test_a_sentence_tells_of_a_few_limits_and_counts_the_others(agent: Agent, more: int, ending: str) -> None:
    """Both sides of the edge."""
    standings = [standing(agent, "1/minute", 1, algorithm="fixed-window") for _ in range(SENTENCE_LIMITS_MAX + more)]

    assert SENTENCE_LIMITS_MAX == said(*standings).count("may send")
    assert said(*standings).endswith(f"has sent 1{ending}; it can go on in 40 s.")


@pytest.mark.parametrize(
    ("text", "more", "clause"),
    [
        ("1/day", {}, "acme may send 1 request a day and has sent 0"),
        ("5/10s", {}, "acme may send 5 requests in 10 s and has sent 0"),
        ("5/1500ms", {}, "acme may send 5 requests in 1.5 s and has sent 0"),
        ("5/30m", {}, "acme may send 5 requests in 30 minutes and has sent 0"),
        ("5/14d", {}, "acme may send 5 requests in 14 days and has sent 0"),
        ("5/30d", {"algorithm": "fixed-window", "align": "calendar"},
         "acme may send 5 requests a calendar month and has sent 0"),
        ("10/s burst 20", {}, "acme may send 10 requests a second, 20 of them at once, and has sent 0"),
        ("9/s", {"costs": {"GET": 1, "*": 2}}, "acme may use 9 units a second and has used 0"),
        ("9/s", {"by": ("customer", "user")}, "acme may send 9 requests a second for each user and has sent 0"),
        ("9/s", {"by": ("organisation",)},
         "acme shares 9 requests a second with others of the same organisation, which have sent 0 together"),
        ("9/s", {"former": True}, "acme may send 9 requests a second by its former contract and has sent 0"),
    ],
)  # fmt: skip
def test_a_limit_is_told_in_words(agent: Agent, text: str, more: dict[str, Any], clause: str) -> None:
    """The words fit any window, and any way of counting."""
    assert f"{clause}; it can go on now." == said(standing(agent, text, **more))


def test_a_limit_in_shadow_refuses_no_customer(agent: Agent) -> None:
    """Its sentence says that it would."""
    shadow = standing(agent, "2/minute", 2, switch="shadow")

    assert (
        "acme may send 2 requests a minute and has sent 2; "
        "the limit is only tried out (in shadow), so it can go on now." == said(shadow)
    )
    assert said(standing(agent, "9/minute"), shadow).startswith("acme may send 2 requests a minute and has sent 2, and")


def test_limits_that_are_off_are_not_told(agent: Agent) -> None:
    """If all are, that is said."""
    off = standing(agent, "2/minute", 2, switch="off")

    assert "all limits of acme are switched off; it can go on now." == said(off)
    assert "acme may send 9 requests a minute and has sent 0; it can go on now." == said(
        off, standing(agent, "9/minute")
    )


def test_a_customer_without_a_contract_is_refused_until_it_has_one() -> None:
    """No moment is known at which it can go on."""
    explanation = explained("acme", REFUSED, [])

    assert (
        Explanation(
            customer="acme",
            plan=REFUSED,
            allowed=False,
            refused_by=(),
            wait_s=inf,
            limits=(),
            sentence="acme has no contract, and requests without one are refused.",
        )
        == explanation
    )


def test_doubt_is_told() -> None:
    """A refusal that a word of the hub could change is no fact about the customer."""
    term = Term("requests", Limit.parse("5/second"), ("customer",), "free")
    decision = Decision(False, 5, 0, 0.25, 0.5, inf, certain=False)

    assert (
        "acme may send 5 requests a second and has sent 3; as far as this server knows, it can go on in 0.3 s."
        == said(LimitStanding(term, decision, Usage(3, 3, 5, 3, inf)))
    )


@pytest.mark.parametrize(
    ("identity", "subject"),
    [("Crème & Söhne", "Crème & Söhne"), ("a\nb", "'a\\nb'"), ("\ud800", "'\\ud800'"), ("\u202e", "'\\u202e'")],
)
def test_an_identity_does_not_change_the_text_around_it(agent: Agent, identity: str, subject: str) -> None:
    """Line feeds, and what turns the direction of writing, are shown and not done."""
    assert said(standing(agent, "5/s"), customer=identity).startswith(f"{subject} may send 5")


def test_an_explanation_has_all_limits_in_their_order(agent: Agent) -> None:
    """With use, what is left, and when something of it comes back."""
    day = standing(agent, "1000/day", 2, name="daily")
    second = standing(agent, "4/second", 4, name="burst", algorithm="token-bucket")
    explanation = explained("acme", "free", [day, second])

    assert (False, ("burst",), 0.25) == (explanation.allowed, explanation.refused_by, explanation.wait_s)
    assert [("daily", True, 2, 998, 86.4, 0.0), ("burst", False, 4, 0, 0.25, 0.25)] == [
        (each.name, each.allowed, each.used, each.remaining, each.refill_s, each.wait_s) for each in explanation.limits
    ]


@pytest.mark.parametrize(
    ("text", "fields", "seconds"),
    [
        ("60/minute", {"algorithm": "fixed-window"}, 60),
        ("60/minute", {"algorithm": "sliding-slices", "slices": 1}, 60),
        ("60/minute", {"algorithm": "sliding-slices", "slices": 12}, 5),
        ("60/minute", {}, 1),
        ("60/minute", {"algorithm": "sliding-log"}, 1),
        ("60/minute burst 5", {}, 1),
        ("60/minute", {"algorithm": "token-bucket", "refill": "interval"}, 60),
    ],
)
def test_what_is_used_comes_back_as_the_algorithm_has_it(text: str, fields: dict[str, Any], seconds: float) -> None:
    """At the end of a window or a slice, or request by request."""
    assert seconds == refill_s(Limit.parse(text, **fields))


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (0.0, "0.1 s"),
        (0.7, "0.7 s"),
        (0.4 + 1e-12, "0.4 s"),
        (0.41, "0.5 s"),
        (3.0, "3 s"),
        (10.0, "10 s"),
        (10.1, "11 s"),
        (120.0, "120 s"),
        (120.1, "3 minutes"),
        (7200.0, "120 minutes"),
        (7201.0, "3 hours"),
        (172_800.0, "48 hours"),
        (172_801.0, "3 days"),
        (31 * 86_400.0, "31 days"),
    ],
)
def test_a_time_to_wait_is_rounded_up(seconds: float, written: str) -> None:
    """Both sides of the edges; floating point adds nothing to a whole number."""
    assert written == written_wait(seconds)


def test_a_limit_that_a_contract_has_in_shadow_refuses_nothing(agent: Agent) -> None:
    """The contract switches it for this customer alone, and its limiter would refuse."""
    full = standing(agent, "2/minute", 2, name="burst")
    shadow = LimitStanding(full.term, full.decision, full.usage, shadow=True)
    explanation = explained("acme", "free", [shadow])

    assert (False, ("burst",)) == (
        explained("acme", "free", [full]).allowed,
        explained("acme", "free", [full]).refused_by,
    )
    assert (True, (), 0.0) == (explanation.allowed, explanation.refused_by, explanation.wait_s)
    assert ("shadow", True) == (explanation.limits[0].switch, explanation.limits[0].allowed)
    assert explanation.sentence.endswith("the limit is only tried out (in shadow), so it can go on now.")
