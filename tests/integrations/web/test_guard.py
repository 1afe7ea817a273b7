"""Goal: a guard decides as its rules say, and whatever breaks inside it never breaks a request.

Method: requests made of values, an agent that is alone on a clock of the test's own, and functions that fail.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconverge import Agent, InvalidLimit, InvalidSetting, Limit, LimitConflict
from reconverge.integrations import (
    SPENT,
    Guard,
    Outcome,
    PlainRequest,
    RateLimited,
    Request,
    Response,
    Rule,
    by_header,
    by_method,
    by_user,
)
from reconverge.integrations.asgi import RateLimitMiddleware
from reconverge.integrations.web import bound_rule
from reconverge.integrations.web.request.paths import path_pattern
from reconverge.testing import ManualClock

ADA = PlainRequest(client="192.0.2.1", route="/items", headers={"x-key": "ada"})
BOB = PlainRequest(client="192.0.2.2", route="/items", headers={"x-key": "bob"})


def allowed(guard: Guard, rules: Sequence[Any], *requests: PlainRequest) -> list[bool]:
    declared = [guard.declare(rule) for rule in rules]
    return [bool(guard.check(request, declared)) for request in requests]


def fail(*_: Any) -> Any:
    raise KeyError("an application's mistake")


# -------------------------------------------------------------------- what is limited


def test_all_limits_are_charged_or_none_is(guard: Guard, agent: Agent) -> None:
    """The first limit gives its charge back when the second refuses."""
    rules = [Rule(limits="10/minute", name="wide"), Rule(limits="1/minute", name="tight", key_func=by_header("x-key"))]

    assert [True, False, False] == allowed(guard, rules, ADA, ADA, ADA)
    assert 1 == agent.limiter("wide").usage("192.0.2.1").own


@pytest.mark.parametrize("order", [("tight", "wide"), ("wide", "tight")])
@pytest.mark.parametrize("together", [True, False])
def test_a_refused_request_gives_nothing_back_that_it_was_not_charged(
    guard: Guard, agent: Agent, order: tuple[str, str], together: bool
) -> None:
    """Else refused requests would free what others have used, also where limits are charged one after the other."""
    limiters = {"wide": agent.limit("wide", "10/minute"), "tight": agent.limit("tight", "1/minute")}
    rules = [guard.declare(Rule(limits=limiters[name], name=name)) for name in order]
    if not together:
        rules.append(guard.declare(Rule(limits=limiters["wide"], name="again", key_func=by_header("x-key"))))
    for _ in range(5):
        limiters["wide"].hit(ADA.client or "")

    assert [True, False, False, False] == [bool(guard.check(ADA, rules)) for _ in range(4)]

    assert 6 == limiters["wide"].usage(ADA.client or "").own
    if not together:
        assert 1 == limiters["wide"].usage("ada").own


def test_a_refusal_is_to_be_retried_when_no_limit_refuses_any_more(guard: Guard, clock: ManualClock) -> None:
    """Retry-After is that of the longest wait; a second before it one is refused, and then no more."""
    rules = [guard.declare("1/second", name="short"), guard.declare("2/minute", name="long")]
    guard.check(ADA, rules)
    clock.advance(5)
    guard.check(ADA, rules)
    refusal = guard.check(ADA, rules).refusal
    assert refusal is not None
    after = int(dict(refusal.fields)["Retry-After"])
    clock.advance(after - 1)

    assert not guard.check(ADA, rules)
    clock.advance(1)
    assert guard.check(ADA, rules)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Rule(limits="1/minute", methods=["post"]), [True, True, False, True]),
        (Rule(limits="1/minute", paths=["/items/{id}"]), [True, True, False, True]),
        (Rule(limits="1/minute", paths=["/items/*"]), [True, True, False, True]),
        (Rule(limits="1/minute", per_method=True), [True, True, False, False]),
        (Rule(limits="1/minute", exempt_when=lambda request: request.path == "/"), [True, True, False, True]),
        (Rule(limits="1/minute", scope=lambda request: request.path), [True, True, False, False]),
        (Rule(limits="4/minute", cost=lambda request: 3 if request.method == "POST" else 0), [True, True, False, True]),
        (Rule(limits="1/minute", shadow=True), [True, True, True, True]),
    ],
    ids=lambda value: "" if isinstance(value, list) else None,
)
def test_a_rule_says_which_requests_it_is_about(guard: Guard, rule: Rule, expected: list[bool]) -> None:
    """Of two requests of each kind."""
    get, post = PlainRequest(client="192.0.2.1"), PlainRequest("POST", "/items/7", client="192.0.2.1")

    assert expected == allowed(guard, [rule], get, post, post, get)


def test_each_route_counts_on_its_own_under_one_name(guard: Guard, agent: Agent) -> None:
    """A thousand routes are one limit, so that nothing has a thousand labels; what leads nowhere is one more."""
    rule = guard.declare(Rule(limits="1/minute", name="default", per_route=True))
    routes = [PlainRequest(client="192.0.2.1", route=f"/{number}") for number in range(1000)]
    lost = [PlainRequest(client="192.0.2.1", path=f"/{number}") for number in range(1000)]

    assert all(guard.check(request, [rule]) for request in routes)
    assert 1 == sum(bool(guard.check(request, [rule])) for request in lost)
    assert {"default"} == set(agent.stats().limits)
    assert 1001 == agent.stats().limits["default"].keys


def test_methods_that_clients_make_up_count_as_one(guard: Guard, agent: Agent) -> None:
    """Where methods count apart, too; one that the rule names is not made up."""
    rule = guard.declare(Rule(limits="1/minute", name="methods", per_method=True, key_func=by_method))
    named = guard.declare(Rule(limits="1/minute", name="named", per_method=True, methods=["PROPFIND"]))
    made_up = [PlainRequest(f"METHOD{number}") for number in range(1000)]

    assert 1 == sum(bool(guard.check(request, [rule])) for request in made_up)
    assert guard.check(PlainRequest("PROPFIND"), [named])
    assert ["-|-"] == list(agent.limiter("methods").control.table.cells)
    assert ["PROPFIND|~nobody"] == list(agent.limiter("named").control.table.cells)


def test_a_path_that_repeats_itself_is_not_searched_in_every_way() -> None:
    """A hundred thousand characters that fit a pattern in as many ways as there can be are read in one go."""
    pattern = path_pattern("/{a}-{b}-{c}-{d}")

    assert None is pattern.fullmatch("/" + "-" * 100_000 + "/x")
    assert pattern.fullmatch("/" + "-" * 100_000)


@given(
    st.lists(st.sampled_from(["{a}", "-", "/", "x", "-x"]), min_size=1, max_size=5).map("".join),
    st.text(alphabet="-/x", max_size=8),
)
def test_a_pattern_matches_what_some_way_of_filling_its_gaps_makes(pattern: str, path: str) -> None:
    """A gap is one character or more, without a slash; which of several ways it is found does not matter."""
    every_way = "[^/]+".join(map(re.escape, f"/{pattern}".rstrip("/").split("{a}"))) + "/*"

    assert bool(re.fullmatch(every_way, f"/{path}")) == bool(path_pattern(f"/{pattern}").fullmatch(f"/{path}"))


def test_requests_with_a_scope_count_together(guard: Guard) -> None:
    """Under one name and one scope, however many rules say so."""
    rules = [Rule(limits="1/minute", name="shared", scope="api"), Rule(limits="1/minute", name="shared", scope="api")]

    assert [False] == allowed(guard, rules, ADA)


def test_tiers_are_given_by_request(guard: Guard, agent: Agent) -> None:
    """Each is a limit of its own with its name, and one without a limit is not limited."""
    tiers = {"ada": Limit(1, 60, name="free"), "bob": "3/minute", "eve": None}
    rule = guard.declare(Rule(limits=lambda request: tiers[request.header("x-key")], name="plan"))
    eve = PlainRequest(headers={"x-key": "eve"})

    assert [True, False] == [bool(guard.check(ADA, [rule])) for _ in range(2)]
    assert [True, True, True, False] == [bool(guard.check(BOB, [rule])) for _ in range(4)]
    assert all(guard.check(eve, [rule]) for _ in range(10))
    assert "plan.free" in agent.stats().limits
    assert 2 == len(agent.stats().limits)


def test_limits_beyond_the_most_of_a_rule_are_coarser_and_few(
    guard: Guard, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each customer may have a number of its own: further ones get at least half of theirs, and their count is bounded.

    This is counted. Only if even the coarse limits are too many, because windows differ too, the strictest one holds.
    """
    monkeypatch.setattr(bound_rule, "TIERS_MAX", 5)
    limits = iter([*(f"{number}/minute" for number in range(2, 7)), *["11/minute"] * 9, *["15/minute"] * 9])
    rule = guard.declare(Rule(limits=lambda: next(limits), name="plan"))

    assert all(guard.check(ADA, [rule]) for _ in range(5))
    assert [True] * 8 + [False] == [bool(guard.check(ADA, [rule])) for _ in range(9)]
    assert [True] * 8 + [False] == [bool(guard.check(BOB, [rule])) for _ in range(9)]
    assert 6 == len(agent.stats().limits)
    assert {"TooManyTiers": 18} == guard.stats().failures


def test_a_limit_made_up_for_every_request_is_no_tier(
    guard: Guard, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is an end to the limits that one rule makes, which is counted: beyond it the strictest one holds."""
    monkeypatch.setattr(bound_rule, "TIERS_MAX", 5)
    numbers = iter(range(2, 10_000))
    rule = guard.declare(Rule(limits=lambda: f"2/{next(numbers)}s", name="plan"))

    assert all(guard.check(ADA, [rule]) for _ in range(10))
    assert [True, True, False, False] == [bool(guard.check(BOB, [rule])) for _ in range(4)]
    assert 10 == len(agent.stats().limits)
    assert {"TooManyTiers": 9} == guard.stats().failures


@pytest.mark.parametrize("limits", ["0/minute", ["9/minute", "0/day"]])
def test_a_quota_of_0_refuses_every_request(guard: Guard, agent: Agent, limits: Any) -> None:
    """Of a fixed rule, and of one that a function returns; None admits. It is counted, and nothing has failed."""
    fixed = guard.declare(Rule(limits=limits, name="fixed"))
    chosen = guard.declare(Rule(limits=lambda: limits, name="chosen"))
    shadow = guard.declare(Rule(limits=limits, name="shadow", shadow=True))
    unlimited = guard.declare(Rule(limits=lambda: None, name="unlimited"))
    refused = [guard.check(ADA, [rule]) for rule in (fixed, chosen)]

    assert [429, 429] == [outcome.refusal.status for outcome in refused if outcome.refusal is not None]
    assert guard.check(ADA, [shadow, unlimited])
    refusing = [name for name, each in agent.stats().limits.items() if each.refused == 1]
    assert ["chosen", "fixed", "shadow"] == sorted(re.split("[.#]", name)[0] for name in refusing)
    assert {} == guard.stats().failures


@pytest.mark.parametrize("switch", ["shadow", "off"])
def test_a_limit_that_refuses_nothing_is_not_shown_to_clients(guard: Guard, agent: Agent, switch: Any) -> None:
    """A client that heeds it would wait in vain; the limit beside it that is enforced is shown."""
    watched = guard.declare(Rule(limits=agent.limit("watched", "1/minute", switch=switch), name="watched"))
    enforced = guard.declare(Rule(limits="9/minute", name="enforced"))

    for outcome in (guard.check(ADA, [watched]), guard.check(ADA, [watched])):
        assert outcome
        assert [] == outcome.fields
    assert all("watched" not in value for _, value in guard.check(ADA, [watched, enforced]).fields)
    assert any("enforced" in value for _, value in guard.check(ADA, [watched, enforced]).fields)


def test_a_request_filter_lets_requests_pass(guard: Guard) -> None:
    """Uncharged, and counted."""
    guard.request_filter(lambda request: request.header("x-key") == "ada")

    assert [True, True, True, False] == allowed(guard, ["1/minute"], ADA, ADA, BOB, BOB)
    assert 2 == guard.stats().exempted


@pytest.mark.parametrize(
    ("missing", "expected", "keys"),
    [
        ("address", [True, False, True], ["~address:192.0.2.1", "~address:192.0.2.2"]),
        ("shared", [True, False, False], ["~nobody"]),
        ("refuse", [False, False, False], []),
        ("exempt", [True, True, True], []),
    ],
)
def test_what_becomes_of_a_request_without_a_key_is_said(
    guard: Guard, agent: Agent, missing: str, expected: list[bool], keys: list[str]
) -> None:
    """Each way is another result; none of them fails."""
    rule = Rule(limits="1/minute", name="keyed", key_func=by_header("x-token"), missing=missing)

    assert expected == allowed(guard, [rule], ADA, ADA, BOB)
    assert keys == sorted(agent.limiter("keyed").control.table.cells)
    assert {} == guard.stats().failures


def test_without_an_address_all_count_together(guard: Guard) -> None:
    """A unix socket that is not trusted tells none."""
    assert [True, False] == allowed(guard, ["1/minute"], PlainRequest(client=None), PlainRequest(client=None))


# -------------------------------------------------------------------- what is charged


def test_an_estimate_is_settled_from_the_response(guard: Guard, agent: Agent) -> None:
    """By what the response says; a second end changes nothing, and nobody is asked about it."""
    seen: list[Response] = []

    def settle(response: Response) -> int:
        seen.append(response)
        return response.bytes_sent

    rule = guard.declare(Rule(limits="100/minute", name="tokens", cost=80, settle=settle))
    outcome = guard.check(ADA, [rule])
    assert not guard.check(ADA, [rule])

    outcome.finish(Response(200, bytes_sent=15))
    outcome.finish(Response(200, bytes_sent=99))

    assert 1 == len(seen)
    assert 15 == agent.limiter("tokens").usage("192.0.2.1").own


@pytest.mark.parametrize(("status", "charged"), [(200, 0), (401, 1)])
def test_a_response_may_cost_nothing(guard: Guard, agent: Agent, status: int, charged: int) -> None:
    """Failed logins count, and others do not; until it is known, all do."""
    rule = guard.declare(Rule(limits="1/minute", name="logins", deduct_when=lambda response: response.status == 401))
    outcome = guard.check(ADA, [rule])
    assert not guard.check(ADA, [rule])

    outcome.finish(Response(status))

    assert charged == agent.limiter("logins").usage("192.0.2.1").own


def test_the_application_may_say_itself_what_was_used(guard: Guard, agent: Agent) -> None:
    """Part by part; the end gives the rest back."""
    rule = guard.declare(Rule(limits="100/minute", name="tokens", cost=50, settle=SPENT))
    outcome = guard.check(ADA, [rule])
    outcome.spend(10)
    outcome.spend(11, "tokens")
    outcome.spend(1000, "others")
    assert 50 == agent.limiter("tokens").usage("192.0.2.1").own

    outcome.finish(Response(200))

    assert 21 == agent.limiter("tokens").usage("192.0.2.1").own


def test_a_settlement_that_fails_keeps_the_estimate(guard: Guard, agent: Agent) -> None:
    """It is counted, and whoever serves the request does not hear of it."""
    rule = guard.declare(Rule(limits="100/minute", name="tokens", cost=80, settle=fail))
    guard.check(ADA, [rule]).finish(Response(200))

    assert 80 == agent.limiter("tokens").usage("192.0.2.1").own
    assert {"KeyError": 1} == guard.stats().failures


def test_a_cost_that_never_fits_is_refused_for_good(guard: Guard) -> None:
    """It is the request that is wrong: no failure, and nothing to wait for."""
    rule = guard.declare(Rule(limits="10/minute", name="bytes", cost=lambda: 11))
    outcome = guard.check(ADA, [rule])

    assert outcome.refusal is not None
    assert "Retry-After" not in dict(outcome.refusal.fields)
    assert ["bytes"] == outcome.refusal.problem["violated-policies"]
    assert {} == guard.stats().failures


def test_a_request_that_one_limit_refuses_is_not_charged_in_the_shadow(guard: Guard, agent: Agent) -> None:
    """The shadow decides about what goes on, counts what it would have refused, and is not shown."""
    rules = [
        guard.declare(Rule(limits="3/minute", name="real")),
        guard.declare(Rule(limits="1/minute", name="dark", shadow=True)),
    ]
    outcomes = [guard.check(ADA, rules) for _ in range(5)]

    assert [True, True, True, False, False] == [bool(outcome) for outcome in outcomes]
    assert 2 == guard.stats().shadowed
    assert 1 == agent.limiter("dark").usage("192.0.2.1").own
    assert not any("dark" in value for outcome in outcomes for _, value in outcome.fields)


# -------------------------------------------------------------------- what is answered


def test_a_refusal_is_a_problem_with_a_name(guard: Guard) -> None:
    """Its status, its type, which limit, and when to come again."""
    rule = guard.declare("1/minute", name="login")
    guard.check(ADA, [rule])
    refusal = guard.check(ADA, [rule]).refusal

    assert refusal is not None
    assert 429 == refusal.status
    assert "https://iana.org/assignments/http-problem-types#quota-exceeded" == refusal.problem["type"]
    assert ["login"] == refusal.problem["violated-policies"]
    assert "application/problem+json" == dict(refusal.fields)["Content-Type"]
    assert str(len(refusal.body)) == dict(refusal.fields)["Content-Length"]
    assert "Retry-After" in dict(refusal.fields)


def test_load_is_shed_with_another_status(guard: Guard) -> None:
    """503, and a type of its own."""
    rule = guard.declare(Rule(limits="1/minute", status=503))
    guard.check(ADA, [rule])
    refusal = guard.check(ADA, [rule]).refusal

    assert refusal is not None
    assert (503, 503) == (refusal.status, refusal.problem["status"])
    assert str(refusal.problem["type"]).endswith("#temporary-reduced-capacity")


@pytest.mark.parametrize(
    "message", ["line\r\nSet-Cookie: a=b", "\ud800", "a" * 100_000, fail], ids=["crlf", "surrogate", "long", "fails"]
)
def test_what_a_refusal_says_cannot_break_it(guard: Guard, message: Any) -> None:
    """The message is in the body alone, escaped and of a bounded length; one that fails is left out."""
    rule = guard.declare(Rule(limits="1/minute", error_message=message))
    guard.check(ADA, [rule])
    refusal = guard.check(ADA, [rule]).refusal

    assert refusal is not None
    assert refusal.body.isascii()
    assert len(refusal.body) < 10_000
    assert all(value.isprintable() and value.isascii() for _, value in refusal.fields)


def test_headers_can_be_left_out_but_not_when_to_come_again(agent: Agent) -> None:
    """`headers_enabled=False` is about the quotas."""
    guard = Guard(agent, headers_enabled=False)
    rule = guard.declare("1/minute")

    assert [] == guard.check(ADA, [rule]).fields
    refusal = guard.check(ADA, [rule]).refusal
    assert refusal is not None
    assert ["Content-Type", "Content-Length", "Retry-After"] == [name for name, _ in refusal.fields]


def test_a_breach_is_told_and_may_be_answered_otherwise(guard: Guard) -> None:
    """`on_breach` sees the outcome; what it returns is the response, and if it fails there is the usual one."""
    seen: list[Outcome] = []

    def breached(outcome: Outcome) -> str:
        seen.append(outcome)
        return "instead"

    told = guard.declare(Rule(limits="1/minute", name="told", on_breach=breached))
    fails = guard.declare(Rule(limits="1/minute", name="fails", on_breach=fail))
    guard.check(ADA, [told, fails])

    assert "instead" == guard.check(ADA, [told]).response
    assert "told" == seen[0].rulings[0].name
    assert None is guard.check(ADA, [fails]).response
    assert {"KeyError": 1} == guard.stats().failures


def test_an_exception_says_what_the_outcome_does(guard: Guard) -> None:
    """With the decision to wait for."""
    rule = guard.declare("1/minute", name="login")
    guard.check(ADA, [rule])
    error = RateLimited.of(guard.check(ADA, [rule]))

    assert error.decision is not None
    assert error.decision.retry_after == error.retry_after > 0
    assert "login" in str(error)


# -------------------------------------------------------------------- what breaks

BROKEN = [
    Rule(limits=fail, name="limits"),
    Rule(limits=lambda: "nonsense", name="nonsense"),
    Rule(limits="1/minute", name="key", key_func=fail),
    Rule(limits="1/minute", name="object", key_func=object),
    Rule(limits="1/minute", name="cost", cost=fail),
    Rule(limits="1/minute", name="negative", cost=lambda: -1),
    Rule(limits="1/minute", name="exempt", exempt_when=fail),
    Rule(limits="1/minute", name="scope", scope=fail),
]


@pytest.mark.parametrize("rule", BROKEN, ids=lambda rule: rule.name)
def test_what_breaks_makes_no_request_unlimited(
    agent: Agent, rule: Rule, caplog: pytest.LogCaptureFixture, clock: ManualClock
) -> None:
    """The limit holds on the safe side; it is counted each time, and logged at once and then once in a minute."""
    guard = Guard(agent)
    knows_a_limit = not callable(rule.limits)
    with caplog.at_level(logging.WARNING, "reconverge"):
        answers = allowed(guard, [rule], ADA, ADA, ADA)
        said = len(caplog.records)
        clock.advance(61)
        allowed(guard, [Rule(limits="9/minute", name=f"{rule.name}.again", key_func=fail)], BOB, BOB)

    assert [knows_a_limit, False, False] == answers
    assert 5 == sum(guard.stats().failures.values())
    assert (1, 2) == (said, len(caplog.records))


def test_what_an_application_makes_of_a_refusal_is_in_no_other(guard: Guard) -> None:
    """Refusals alike are written once, and their problem details are the application's to change all the same."""
    rule = guard.declare("1/minute")
    guard.check(ADA, [rule])
    first, second = (guard.check(ADA, [rule]).refusal for _ in range(2))
    assert first is not None
    assert second is not None
    first.problem["violated-policies"].append("of the application")

    assert ["requests"] == second.problem["violated-policies"]
    third = guard.check(ADA, [rule]).refusal
    assert third is not None
    assert ["requests"] == third.problem["violated-policies"]


@pytest.mark.parametrize("rule", BROKEN, ids=lambda rule: rule.name)
def test_what_breaks_refuses_where_that_was_chosen(agent: Agent, rule: Rule) -> None:
    """With 503, as it is not the client's fault, and without charging anybody else."""
    guard = Guard(agent, fail="closed")
    rules = [guard.declare(Rule(limits="2/minute", name="other")), guard.declare(rule)]
    refusal = guard.check(ADA, rules).refusal

    assert refusal is not None
    assert 503 == refusal.status
    assert 0 == agent.limiter("other").usage("192.0.2.1").own


def test_what_breaks_in_the_shadow_refuses_nothing(agent: Agent) -> None:
    """Not even where that was chosen."""
    guard = Guard(agent, fail="closed")

    assert [True] == allowed(guard, [Rule(limits="1/minute", key_func=fail, shadow=True)], ADA)


def test_fields_that_cannot_be_made_are_left_out(agent: Agent) -> None:
    """The response goes on without them, and a refusal still says when to come again."""
    guard = Guard(agent, dialect="x-ratelimit")  # these fields tell the time of day, and so need a clock

    class NoWallClock(ManualClock):
        def wall_ns(self) -> int:
            raise OSError("no time")

    guard._clock = NoWallClock()
    rule = guard.declare("1/minute")

    assert [] == guard.check(ADA, [rule]).fields
    refusal = guard.check(ADA, [rule]).refusal
    assert refusal is not None
    assert "Retry-After" in dict(refusal.fields)
    assert {"OSError": 2} == guard.stats().failures


def test_exceptions_for_the_framework_pass(agent: Agent) -> None:
    """A key function may say that nobody is logged in."""
    guard = Guard(agent, passes=(KeyError,))

    with pytest.raises(KeyError):
        allowed(guard, [Rule(limits="1/minute", key_func=fail)], ADA)


def test_classes_of_failures_are_bounded(guard: Guard) -> None:
    """However many an application makes."""
    for number in range(1000):
        guard.failed(type(f"Error{number}", (Exception,), {})(), "made up")

    assert 65 >= len(guard.stats().failures)
    assert 1000 == sum(guard.stats().failures.values())


def test_a_guard_can_be_switched_off(agent: Agent) -> None:
    """Nothing is decided, and nothing said."""
    assert [True, True] == allowed(Guard(agent, enabled=False), ["1/minute"], ADA, ADA)


# -------------------------------------------------------------------- with and without an event loop


async def slow_key(request: Request) -> str | None:
    await asyncio.sleep(0)
    return request.header("x-key")


async def test_coroutine_functions_are_awaited(guard: Guard) -> None:
    """Those that find keys, costs and tiers, in the same way as others."""

    async def tier(request: Request) -> str:
        return "1/minute" if await slow_key(request) == "ada" else "2/minute"

    rule = guard.declare(Rule(limits=tier, key_func=slow_key))

    assert [True, False, True, True, False] == [
        bool(await guard.check_async(request, [rule])) for request in (ADA, ADA, BOB, BOB, BOB)
    ]


def test_a_coroutine_function_without_a_loop_is_a_failure_like_any(guard: Guard) -> None:
    """Nobody awaits it; no warning of one that was never awaited remains."""
    rule = guard.declare(Rule(limits="1/minute", key_func=slow_key))

    assert guard.check(ADA, [rule])
    assert {"InvalidSetting": 1} == guard.stats().failures


def test_a_future_without_a_loop_is_a_failure_like_any(guard: Guard) -> None:
    """Any awaitable fails so, and not coroutines alone."""

    class Later:
        def __await__(self) -> Any:
            raise AssertionError("nobody awaits here")

    rules = [guard.declare(Rule(limits="1/minute", key_func=Later)), guard.declare(Rule(limits="1/minute", cost=Later))]

    assert guard.check(ADA, rules)
    assert {"InvalidSetting": 2} == guard.stats().failures


async def test_a_cancelled_decision_charges_nothing(guard: Guard, agent: Agent) -> None:
    """Who is cancelled while a key is looked for has not been admitted."""
    waiting = asyncio.Event()

    async def stuck(_request: Request) -> str:
        waiting.set()
        await asyncio.Event().wait()
        return "never"

    rules = [
        guard.declare(Rule(limits="1/minute", name="first")),
        guard.declare(Rule(limits="1/minute", key_func=stuck)),
    ]

    task = asyncio.create_task(guard.check_async(ADA, rules))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert 0 == agent.limiter("first").usage("192.0.2.1").own


# -------------------------------------------------------------------- what is a mistake


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Rule(limits="1/minute", cost=-1), "cost=-1"),
        (lambda: Rule(limits="1/minute", cost=True), "cost=True"),
        (lambda: Rule(limits="1/minute", missing="ignore"), "missing='ignore'"),
        (lambda: Rule(limits="1/minute", status=500), "status=500"),
        (lambda: Rule(limits="1/minute", methods="GET"), "methods='GET'"),
        (lambda: Rule(limits="1/minute", methods=[5]), "is not a list of strings"),  # type: ignore[list-item]
        (lambda: Rule(limits="1/minute", name=5), "name=5"),  # type: ignore[arg-type]
        (lambda: Rule(limits="1/minute", status=429.0), "status=429.0"),  # type: ignore[arg-type]
        (lambda: Rule(limits="1/minute", shadow="no"), "shadow='no'"),  # type: ignore[arg-type]
        (lambda: Rule(limits="1/minute", error_message=slow_key), "error_message="),  # type: ignore[arg-type]
        (lambda: Guard("memory://", enabled="no"), "enabled='no'"),  # type: ignore[arg-type]
        (lambda: Guard("memory://", dialect=[["ietf-11"]]), "is not one of"),  # type: ignore[list-item]
        (lambda: Guard("memory://", trusted_proxies=None), "trusted_proxies=None"),  # type: ignore[arg-type]
        (lambda: Guard("memory://", forwarded_header=None), "forwarded_header=None"),  # type: ignore[arg-type]
        (lambda: Rule(limits="1/minute", settle="later"), "settle='later'"),
        (lambda: Rule(limits="1/minute", deduct_when=slow_key), "never be awaited"),  # type: ignore[arg-type]
        (lambda: Rule(limits="1/minute", exempt_when="never"), "exempt_when='never'"),  # type: ignore[arg-type]
        (lambda: Guard("memory://", fail="safe"), "fail='safe'"),
        (lambda: Guard("memory://", dialect="ietf"), "dialect='ietf'"),
        (lambda: Guard("memory://", key_func=by_user(ADA)), "key_func=None"),  # type: ignore[arg-type]
        (
            lambda: RateLimitMiddleware(print, guard=Guard("memory://"), status=503),  # type: ignore[arg-type]
            "give these to the guard, too: status",
        ),
        (lambda: RateLimitMiddleware(print, "1/minute", close_code=1000), "close_code=1000"),  # type: ignore[arg-type]
        (lambda: Guard("memory://").declare([]), "limits=\\[\\]"),
        (lambda: Guard("memory://").declare(Rule(limits="1/minute", paths=["items"])), "begin with a slash"),
        (lambda: Guard("memory://").declare(Rule(limits="1/minute", key_func=pow)), "requires more arguments than"),  # type: ignore[arg-type]
    ],
)
def test_a_mistake_is_told_when_it_is_made(make: Callable[[], object], says: str) -> None:
    """And not with the first request."""
    with pytest.raises(InvalidSetting, match=says):
        make()


def test_limits_are_read_when_they_are_declared(guard: Guard) -> None:
    """A typing error is told at once, and one name for two limits, too."""
    with pytest.raises(InvalidLimit):
        guard.declare("10 per fortnight")
    guard.declare(Rule(limits="1/minute", name="login"))
    with pytest.raises(LimitConflict):
        guard.declare(Rule(limits="2/minute", name="login"))


def test_a_name_is_made_of_what_is_limited(guard: Guard) -> None:
    """The same in every process; a second limit of a function has a number, and strange names are made to fit."""
    assert "tests.integrations.web.test_guard.fail" == guard.declare("1/minute", owner=fail).name
    assert "tests.integrations.web.test_guard.fail.2" == guard.declare("2/minute", owner=fail).name
    assert "requests" == guard.declare("1/minute").name
    assert 64 >= len(guard.declare(Rule(limits="1/minute", name="ä" * 200)).name)
