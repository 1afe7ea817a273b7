"""Goal: a request is held to all limits of its customer's contract, wherever an application asks.

Method: a guard with requests made of values; then FastAPI and Flask, as a client sees them.
"""

from __future__ import annotations

import logging
from typing import Annotated, Any

import fastapi
import flask
import httpx
import pytest

from reconverge import Agent, InvalidSetting
from reconverge.contracts.contracts import Contracts
from reconverge.integrations import Guard, PlainRequest, Rule, by_header
from reconverge.integrations.fastapi import Limits as FastApiLimits
from reconverge.integrations.flask import Limits
from reconverge.testing import ManualClock

BY_CUSTOMER = by_header("x-customer")
BY_USER = by_header("x-user")
PLANS: dict[str, Any] = {
    "free": {"limits": {"requests": "3/hour", "user": {"limit": "2/hour", "by": ["customer", "user"]}}},
    "pro": {"limits": {"requests": "30/hour", "user": {"limit": "20/hour", "by": ["customer", "user"]}}},
}
ODD = {"nul": "a\x00b", "long": "x" * 5000, "parts": "a|b%7C"}
DOCUMENT = {"plans": PLANS, "unknown": "free", "customers": {"acme": "pro"}}


def request_of(customer: str | None, user: str = "ada") -> PlainRequest:
    named = {} if customer is None else {"x-customer": customer}
    return PlainRequest(client="192.0.2.1", route="/items", headers={"x-user": user, **named})


def rule_of(contracts: Contracts, **more: Any) -> Rule:
    """A rule by the contract of the customer that a header names."""
    return Rule(limits=contracts, key_func=BY_CUSTOMER, facts={"user": BY_USER}, **more)


def told(guard: Guard, rule: Rule, *requests: PlainRequest) -> list[bool]:
    declared = [guard.declare(rule)]
    return [bool(guard.check(request, declared)) for request in requests]


def test_all_limits_of_the_contract_hold(guard: Guard, agent: Agent) -> None:
    """Each user may send two, and the customer three; what is refused is charged to none."""
    contracts = Contracts(agent, DOCUMENT)
    one, other = request_of("small"), request_of("small", "bob")

    assert [True, True, False, True, False] == told(guard, rule_of(contracts), one, one, one, other, other)
    assert {"requests": 3, "user": 2} == {
        name: each.own for name, each in contracts.usages("small", user="ada").items()
    }


def test_a_plan_that_changes_holds_for_the_next_request(guard: Guard, agent: Agent) -> None:
    """Use is kept, and the larger quota is in force."""
    contracts = Contracts(agent, DOCUMENT)
    rule = rule_of(contracts)
    before = told(guard, rule, *[request_of("small")] * 4)
    contracts.replace({**DOCUMENT, "customers": {"small": "pro"}})

    assert [True, True, False, False] == before
    assert 18 == sum(told(guard, rule, *[request_of("small")] * 40))


def test_a_request_without_a_customer_has_the_plan_of_unknown_ones_by_its_address(guard: Guard, agent: Agent) -> None:
    """Unless the rule refuses such requests; and where unknown customers are refused, so are they."""
    contracts = Contracts(agent, DOCUMENT)
    strict = Contracts(Agent("memory://", clock=ManualClock(0)), {**DOCUMENT, "unknown": "refused"})

    assert [True, True, False] == told(guard, rule_of(contracts), *[request_of(None)] * 3)
    assert [False] == told(guard, rule_of(contracts, missing="refuse"), request_of(None))
    assert [False, True] == told(guard, rule_of(strict), request_of("stranger"), request_of("acme"))


def test_a_limit_in_shadow_refuses_nothing(guard: Guard, agent: Agent) -> None:
    """The guard counts that it would have."""
    plans = {"p": {"limits": {"a": "5/hour", "b": {"limit": "1/hour", "switch": "shadow"}}}}
    rule = Rule(limits=Contracts(agent, {"plans": plans, "unknown": "p"}), key_func=BY_CUSTOMER)

    assert [True] * 5 + [False] == told(guard, rule, *[request_of("acme")] * 6)
    assert 4 == guard.stats().shadowed


def test_requests_without_a_fact_count_together(guard: Guard, agent: Agent) -> None:
    """A rule may be older than the contracts: what it does not know is a failure that is counted, and limited."""
    rule = Rule(limits=Contracts(agent, DOCUMENT), key_func=BY_CUSTOMER)

    assert [True, True, False] == told(guard, rule, *[request_of("small", user) for user in ("ada", "bob", "eve")])
    assert {"MissingFact": 3} == guard.stats().failures


def test_an_odd_customer_is_limited_as_any_other(guard: Guard, agent: Agent) -> None:
    """With a NUL, or longer than any identity."""
    rule = Rule(limits=Contracts(agent, DOCUMENT), key_func=lambda request: ODD[request.header("x-user") or ""])
    rule = Rule(limits=rule.limits, key_func=rule.key_func, facts={"user": lambda: "one"})

    for name in ODD:
        assert [True, True, False] == told(guard, rule, *[request_of("small", name)] * 3), name


def test_a_fact_that_is_no_text_is_told_by_its_name(
    guard: Guard, agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    """With its type; the request is decided all the same, as one without the fact."""
    contracts = Contracts(agent, DOCUMENT)
    rule = Rule(limits=contracts, key_func=BY_CUSTOMER, facts={"user": lambda _request: {"name": "ada"}})

    with caplog.at_level(logging.WARNING, "reconverge"):
        answers = told(guard, rule, *[request_of("small")] * 3)

    assert [True, True, False] == answers
    assert "the fact 'user': a key must be a text, a number, a date or a UUID, not dict" in caplog.text


@pytest.mark.parametrize(
    ("settings", "name"),
    [({"per_route": True}, "per_route"), ({"scope": "api"}, "scope"), ({"facts": ["user"]}, "facts")],
)
def test_a_setting_without_effect_is_an_error(agent: Agent, settings: dict[str, Any], name: str) -> None:
    """Contracts say themselves by what they count."""
    with pytest.raises(InvalidSetting, match=name):
        Rule(limits=Contracts(agent, DOCUMENT), **settings)
    with pytest.raises(InvalidSetting, match="need limits=Contracts"):
        Rule(limits="5/minute", facts={"user": BY_USER})


async def test_a_dependency_of_fastapi_holds_routes_to_the_contract(agent: Agent) -> None:
    """A customer has one account for all routes, by a header or by what a dependency of FastAPI says that it is."""
    application, limits = fastapi.FastAPI(), FastApiLimits(agent)
    limits.install(application)
    contracts = Contracts(agent, DOCUMENT)

    def customer_of(x_customer: Annotated[str, fastapi.Header()]) -> str:
        return x_customer

    def plain() -> dict[str, bool]:
        return {}

    for path, key in (("/one", BY_CUSTOMER), ("/other", fastapi.Depends(customer_of))):
        limited = fastapi.Depends(limits(contracts, key_func=key, facts={"user": BY_USER}))
        application.get(path, dependencies=[limited])(plain)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url="http://test") as client:
        said = [("/one", "small", "ada"), ("/other", "small", "ada"), ("/one", "small", "ada")]
        said += [("/other", "small", "bob"), ("/one", "small", "bob"), ("/one", "acme", "ada")]
        answers = [
            await client.get(path, headers={"x-customer": customer, "x-user": user}) for path, customer, user in said
        ]

    assert [200, 200, 429, 200, 429, 200] == [answer.status_code for answer in answers]
    assert int(answers[2].headers["retry-after"]) > 0
    assert '"requests' in answers[0].headers["ratelimit-policy"]
    assert answers[2].json()["violated-policies"][0].startswith("user/")


@pytest.mark.parametrize("settings", [{"scope": "all"}, {"per_route": True}, {"per_method": True}])
def test_a_dependency_by_contracts_has_no_setting_without_effect(agent: Agent, settings: dict[str, Any]) -> None:
    """The limits of contracts say what they count by."""
    with pytest.raises(InvalidSetting, match=r"(scope|per_route|per_method).*no effect with contracts"):
        FastApiLimits(agent)(Contracts(agent, DOCUMENT), key_func=BY_CUSTOMER, facts={"user": BY_USER}, **settings)


def test_flask_holds_a_view_to_the_contract(agent: Agent) -> None:
    """An extension decorates the view."""
    application = flask.Flask("portal")
    limits = Limits(app=application, agent=agent)
    view = limits.limit(Contracts(agent, DOCUMENT), key_func=BY_CUSTOMER, facts={"user": BY_USER})(lambda: "")
    application.add_url_rule("/", "root", view)
    client = application.test_client()
    answers = [client.get("/", headers={"x-customer": "small", "x-user": "ada"}).status_code for _ in range(3)]

    assert [200, 200, 429] == answers
