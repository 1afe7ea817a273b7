"""Goal: nothing that a client can choose makes its requests unlimited, and nothing of it is silent.

Method: functions of an application that fail as a client likes; limits with costs by kind; costs that never fit.
Requests are made of values, and the same is asked of the faces that have functions of their own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from reconverge import Agent, InvalidSetting, Limit
from reconverge.errors import UnknownKind
from reconverge.integrations import SPENT, Guard, PlainRequest, Response, Rule
from reconverge.integrations.config import load
from reconverge.integrations.decorators import limited
from reconverge.integrations.httpx import LimitedTransport, QuotaUsedUp
from reconverge.integrations.web.outcome import RateLimited
from tests.support.applications.asking import ADA

METHODS = {"GET": 1, "POST": 2}
KINDS = {"search": 1, "export": 4}


def ask(method: str = "GET", path: str = "/", client: str = ADA, **headers: str) -> PlainRequest:
    return PlainRequest(method, path, client=client, headers=headers)


def answers(guard: Guard, rule: Rule, *requests: PlainRequest) -> list[bool]:
    declared = guard.declare(rule)
    return [bool(guard.check(request, [declared])) for request in requests]


def fail(*_: Any) -> Any:
    raise KeyError("an application's mistake")


def by_key(request: Any) -> str:
    """A key function that fails where a client leaves the field out."""
    key: str = {"ada": "ada", "bob": "bob"}[request.header("x-key") or ""]
    return key


# -------------------------------------------------------------------- functions that fail


@pytest.mark.parametrize(
    ("missing", "expected", "key"),
    [
        ("address", [True, True, False], f"~address:{ADA}"),
        ("exempt", [True, True, False], f"~address:{ADA}"),
        ("shared", [True, True, False], "~nobody"),
        ("refuse", [False, False, False], None),
    ],
)
def test_a_key_function_that_raises_finds_no_key(
    guard: Guard, agent: Agent, missing: str, expected: list[bool], key: str | None
) -> None:
    """The rule for requests without one applies; but that they are exempt, which a client would choose."""
    rule = Rule(limits="2/hour", name="keyed", key_func=by_key, missing=missing)

    assert expected == answers(guard, rule, *[ask()] * 3)
    assert ([] if key is None else [key]) == list(agent.limiter("keyed").control.table.cells)
    assert {"KeyError": 3} == guard.stats().failures


def test_what_failed_is_said_once_with_what_becomes_of_it(guard: Guard, caplog: pytest.LogCaptureFixture) -> None:
    """Each failure of another kind, too, even in the same minute."""
    with caplog.at_level(logging.WARNING, "reconverge"):
        answers(guard, Rule(limits="2/hour", name="one", key_func=fail), *[ask()] * 3)
        answers(guard, Rule(limits="2/hour", name="two", exempt_when=fail), *[ask()] * 3)

    said = [record.getMessage() for record in caplog.records]
    assert 2 == len(said)
    assert "'one: key_func fail' failed, and the request is counted by its address" in said[0]
    assert "return None for a request without one" in said[0]
    assert "'two: exempt_when fail' failed, and the request is not exempt" in said[1]


def test_the_strictest_limit_so_far_stands_for_one_that_cannot_be_told(guard: Guard) -> None:
    """By its rate; a key that has no tier is counted in that one, and before there is any, it is refused."""
    tiers: dict[str, Any] = {"free": "2/hour", "paid": "100/hour", "fast": "10/second", "none": None, "empty": ""}
    declared = guard.declare(Rule(limits=lambda request: tiers[request.header("x-plan")], name="plan"))

    def checked(plan: str, times: int) -> list[bool]:
        return [bool(guard.check(ask(**{"x-plan": plan}), [declared])) for _ in range(times)]

    assert [False] == checked("made up", 1)
    for plan in ("fast", "paid", "free"):
        assert [True] == checked(plan, 1)
    assert [True, False] == checked("made up", 2)
    assert [False] == checked("empty", 1)
    assert [True] * 5 == checked("none", 5)


@pytest.mark.parametrize("said", [fail, lambda: -1, lambda: "many", lambda: 1.5, lambda: None, lambda: True])
def test_a_cost_that_cannot_be_told_is_one(guard: Guard, said: Callable[..., Any]) -> None:
    """No higher one is known."""
    assert [True, True, False] == answers(guard, Rule(limits="2/hour", cost=said), *[ask()] * 3)
    assert 3 == sum(guard.stats().failures.values())


def test_a_cost_that_cannot_be_told_is_the_highest_so_far(guard: Guard, agent: Agent) -> None:
    """So a client gains nothing by writing what is no number; and it is never more than fits at all."""
    rule = guard.declare(Rule(limits="10/hour", name="sized", cost=lambda request: int(request.header("x-size"))))

    def used(size: str, client: str) -> int:
        guard.check(ask(client=client, **{"x-size": size}), [rule])
        return agent.limiter("sized").usage(client).own

    assert 4 == used("4", "192.0.2.1")
    assert 4 == used("four", "192.0.2.2")
    assert 0 == used("1000000", "192.0.2.3")
    assert 10 == used("a million", "192.0.2.4")


def test_functions_that_only_say_who_is_spared_spare_nobody_when_they_fail(guard: Guard) -> None:
    """Filters, exemptions, and what looks at a response."""
    guard.request_filter(fail)
    rule = guard.declare(Rule(limits="2/hour", exempt_when=fail, deduct_when=fail, on_breach=fail, error_message=fail))

    def served() -> bool:
        outcome = guard.check(ask(), [rule])
        outcome.finish(Response(200))
        return bool(outcome)

    assert [True, True, False, False] == [served() for _ in range(4)]
    assert {"KeyError": 16} == guard.stats().failures


@pytest.mark.parametrize("setting", ["deduct_when", "settle"])
def test_a_function_of_the_response_that_fails_is_named(
    setting: str, guard: Guard, caplog: pytest.LogCaptureFixture
) -> None:
    """With its setting, as the limit's name is no function; and what is charged then."""
    rule = guard.declare(Rule(limits="2/hour", name="logins", **{setting: fail}))  # type: ignore[arg-type]
    guard.check(ask(), [rule]).finish(Response(200))

    assert f"the function 'logins: {setting}' failed, and the request stays charged; correct" in caplog.text


# -------------------------------------------------------------------- costs of the limit's own


def declared_limits(agent: Agent) -> dict[str, Any]:
    """Five an hour by methods, said in every way."""
    return {
        "a limit": Limit(5, 3600, costs=METHODS),
        "a list": [Limit(5, 3600, costs=METHODS), "100/day"],
        "a limiter": agent.limit("limiter", "5/hour", costs=METHODS),
        "several quotas": agent.limit("several", "5/hour; 100/day", costs=METHODS),
        "a function": lambda: Limit(5, 3600, costs=METHODS),
    }


@pytest.mark.parametrize("way", ["a limit", "a list", "a limiter", "several quotas", "a function"])
def test_a_limit_charges_its_own_costs_by_method(guard: Guard, agent: Agent, way: str) -> None:
    """Two of POST are four, and then one of GET fits; HEAD costs what GET does."""
    rule = Rule(limits=declared_limits(agent)[way], name="priced")
    requests = [ask(method) for method in ("POST", "POST", "POST", "HEAD", "GET")]

    assert [True, True, False, True, False] == answers(guard, rule, *requests)


def test_a_method_without_a_price_costs_as_much_as_the_dearest(guard: Guard) -> None:
    """A client makes up methods; that is counted. Where all others have a price, it is that one."""
    known = Rule(limits=Limit(5, 3600, costs=METHODS), name="known")
    others = Rule(limits=Limit(5, 3600, costs={"GET": 1, "*": 3}), name="others")

    assert [True, True, False] == answers(guard, known, *[ask("MADE-UP")] * 3)
    assert {"UnknownKind": 3} == guard.stats().failures
    assert [True, False, True] == answers(guard, others, ask("MADE-UP"), ask("MADE-UP"), ask("GET"))
    assert {"UnknownKind": 3} == guard.stats().failures


def test_a_rule_says_a_kind_that_is_no_method(guard: Guard) -> None:
    """The kind is its cost, or the result of a function; one that the limit does not name is the dearest."""
    fixed = Rule(limits=Limit(8, 3600, costs=KINDS), name="fixed", cost="export")
    chosen = Rule(limits=Limit(8, 3600, costs=KINDS), name="chosen", cost=lambda request: request.path[1:])

    assert [True, True, False] == answers(guard, fixed, *[ask()] * 3)
    assert [True, True, False, True] == answers(
        guard, chosen, ask(path="/export"), ask(path="/search"), ask(path="/made-up"), ask(path="/search")
    )


def test_what_is_charged_by_kind_is_given_back_by_kind(guard: Guard, agent: Agent) -> None:
    """To each of several quotas with prices of their own, when another limit refuses."""
    limiter = agent.limit("priced", [Limit(10, 3600, costs=METHODS), Limit(100, 86_400, costs={"*": 5}, name="daily")])
    rules = [guard.declare(Rule(limits=limiter)), guard.declare(Rule(limits="1/hour", name="tight"))]
    outcomes = [bool(guard.check(ask("POST"), rules)) for _ in range(3)]
    used = {name: usage.own for name, usage in limiter.usages(ADA).items()}

    assert [True, False, False] == outcomes
    assert {"priced": 2, "priced#daily": 5} == used


def test_an_estimate_by_kind_is_settled_in_plain_cost(guard: Guard, agent: Agent) -> None:
    """The application's own figure is charged in the end."""
    rule = guard.declare(Rule(limits=Limit(100, 3600, costs={"POST": 20}), name="spent", settle=SPENT))
    outcome = guard.check(ask("POST"), [rule])
    before = agent.limiter("spent").usage(ADA).own
    outcome.spend(7)
    outcome.finish(Response(200))

    assert (20, 7) == (before, agent.limiter("spent").usage(ADA).own)


def test_costs_from_a_file_count(tmp_path: Path) -> None:
    """Also when a reload says others."""
    file = tmp_path / "limits.toml"
    file.write_text('hub = "memory://"\n[limits.api]\nlimit = "5/hour"\ncosts = { GET = 1, POST = 2 }\n')
    configuration = load(file)
    guard = Guard(configuration.agent)
    rule = Rule(limits=configuration.agent.limiter("api"))
    first = answers(guard, rule, *[ask("POST")] * 3)
    file.write_text('hub = "memory://"\n[limits.api]\nlimit = "5/hour"\ncosts = { GET = 1, POST = 5 }\n')
    configuration.reload()

    assert [True, True, False] == first
    assert [True, False] == answers(guard, rule, *[ask("POST", client="192.0.2.9")] * 2)


def test_a_limited_function_says_the_kind_of_its_calls(agent: Agent) -> None:
    """It has no method; a number alone would pass the costs by, and is a mistake."""
    limiter = agent.limit("calls", "8/hour", costs=KINDS)
    exported = limited(limiter, cost="export")(lambda: "yes")
    others = limited(agent.limit("others", "4/hour", costs={"*": 2}))(lambda: "yes")
    counted = limited(limiter, cost=lambda: 1)(lambda: "yes")

    assert ["yes"] * 2 == [exported() for _ in range(2)]
    assert ["yes"] * 2 == [others() for _ in range(2)]
    for call in (exported, others):
        with pytest.raises(RateLimited):
            call()
    with pytest.raises(UnknownKind):
        counted()
    with pytest.raises(InvalidSetting, match="costs by kind: export, search"):
        limited(limiter)(lambda: "yes")


def test_a_call_to_another_server_costs_what_its_method_does(agent: Agent) -> None:
    """Of a limit with costs, also where calls are paced."""
    limiter = agent.limit("outgoing", "5/hour", costs=METHODS)
    inner = httpx.MockTransport(lambda _request: httpx.Response(200))
    with httpx.Client(transport=LimitedTransport(limiter, inner, timeout=0)) as client:
        for _ in range(2):
            client.post("http://host/")
        with pytest.raises(QuotaUsedUp):
            client.post("http://host/")

        assert 200 == client.get("http://host/").status_code


# -------------------------------------------------------------------- costs that never fit


@pytest.mark.parametrize(
    ("limits", "cost", "says"),
    [
        ("10/hour", 11, "is more than 10"),
        ("10/hour; 5/minute", 6, "is more than 5"),
        ("10/hour burst 3", 4, "is more than 3"),
        (Limit(10, 3600, costs=METHODS), 6, "comes to 12 more than 10"),
        (Limit(10, 3600, costs=KINDS), 1, "kinds other than methods: export, search"),
        (Limit(10, 3600, costs=KINDS), "exprot", "is not a kind in the costs of the limit; these are: export, search"),
        ("10/hour", "export", "no costs by kind; write a number, or give the limit costs={'export': 2}"),
        ("10/hour", "", "nor a kind of request"),
    ],
)
def test_a_cost_that_no_request_can_ever_pay_is_a_mistake(guard: Guard, limits: Any, cost: Any, says: str) -> None:
    """Told where it is declared, with the limit and what would fit."""
    with pytest.raises(InvalidSetting, match=says):
        guard.declare(Rule(limits=limits, name="never", cost=cost))


@pytest.mark.parametrize(
    ("limits", "cost"),
    [("10/hour", 10), ("10/hour burst 30", 30), (Limit(10, 3600, costs=METHODS), 5), (Limit(10, 3600, soft=0.5), 15)],
)
def test_a_cost_that_just_fits_is_none(guard: Guard, limits: Any, cost: int) -> None:
    """By the burst, what is soft, and the dearest method."""
    assert [True] == answers(guard, Rule(limits=limits, cost=cost), ask("POST"))


def test_a_cost_may_be_what_a_parent_can_lend(guard: Guard, agent: Agent) -> None:
    """Its own share need not be enough."""
    parent = agent.limit("parent", "100/hour")
    share = agent.limit("share", "10/hour", parent=parent)

    assert [True] == answers(guard, Rule(limits=share, cost=50), ask())


@pytest.mark.parametrize("limits", [lambda: "2/hour", None], ids=["given by request", "lowered"])
def test_a_limit_that_is_too_low_for_its_rule_is_said(
    guard: Guard, agent: Agent, limits: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Where that is known only later: every request is refused, and that is counted and logged once."""
    limiter = agent.limit("lowered", "5/hour")
    declared = guard.declare(Rule(limits=limits or limiter, name="rule", cost=3))
    limiter.change("2/hour")
    with caplog.at_level(logging.WARNING, "reconverge"):
        allowed = [bool(guard.check(ask(), [declared])) for _ in range(3)]

    assert [False] * 3 == allowed
    assert {"CostExceedsQuota": 3} == guard.stats().failures
    assert 1 == len(caplog.records)
    assert "is refused, as every request of this cost is" in caplog.records[0].getMessage()


async def test_a_coroutine_that_fails_is_as_any(guard: Guard) -> None:
    """Limits, keys and costs that are awaited."""

    async def broken(_request: Any) -> Any:
        await asyncio.sleep(0)
        raise KeyError("an application's mistake")

    rule = guard.declare(Rule(limits="2/hour", key_func=broken, cost=broken, scope=broken, exempt_when=broken))

    assert [True, True, False] == [bool(await guard.check_async(ask(), [rule])) for _ in range(3)]
    assert {"KeyError": 12} == guard.stats().failures
