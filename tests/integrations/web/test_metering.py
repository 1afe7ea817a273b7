"""Goal: what a guard charges is counted in its meter, as it is decided and whenever it is corrected.

Method: a guard with requests made of values, each of whose counts can be told by hand. Frameworks and a real hub are in
`frameworks/test_metered.py`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reconverge import Agent, InvalidSetting, Limit
from reconverge.contracts.contracts import Contracts
from reconverge.errors import HubUnavailable
from reconverge.hub.usage import OTHERS, Counts
from reconverge.integrations import SPENT, Guard, Outcome, PlainRequest, Rule, by_header
from reconverge.integrations.decorators import limited
from reconverge.integrations.web.outcome import go_on
from reconverge.integrations.web.request.request import Response
from reconverge.testing import ManualClock
from reconverge.usage import Meter, UsageReporter, fleet_load
from reconverge_sync.memory import MemoryHub
from tests.support.metered import MeteredNode

BY_CUSTOMER = by_header("x-customer")
OK = Response(200)


@pytest.fixture
def meter(clock: ManualClock) -> Meter:
    return Meter(clock)


@pytest.fixture
def guard(agent: Agent, meter: Meter) -> Guard:
    return Guard(agent, key_func=BY_CUSTOMER, meter=meter)


def request_of(customer: str | None = "acme", *, client: str = "192.0.2.1", route: str = "/items") -> PlainRequest:
    return PlainRequest(client=client, route=route, headers={} if customer is None else {"x-customer": customer})


def counts(meter: Meter) -> dict[tuple[str, str], Counts]:
    """Returns the counts since the last call, by identity and limit."""
    found: dict[tuple[str, str], Counts] = {}
    for each in meter.take():
        key = each.key.identity, each.key.limit
        found[key] = Counts(*map(sum, zip(each.counts, found.get(key, Counts(0, 0, 0)), strict=True)))
    return found


def ask(guard: Guard, *rules: Rule, request: PlainRequest | None = None) -> Outcome:
    return guard.check(request or request_of(), [guard.declare(rule) for rule in rules])


def test_what_is_charged_is_counted_at_once_and_corrected_when_it_is_settled(guard: Guard, meter: Meter) -> None:
    """By less, by more, and in parts; only what a response is not to cost is no cost, and it was a request."""
    outcome = ask(
        guard,
        Rule(limits="100/hour", name="estimate", cost=10, settle=lambda _: 4),
        Rule(limits="100/hour", name="parts", cost=10, settle=SPENT),
        Rule(limits="100/hour", name="free", deduct_when=lambda response: response.status != 200),
        Rule(limits="100/hour", name="fixed", cost=2),
    )
    estimates = {"estimate": 10, "parts": 10, "free": 1, "fixed": 2}
    assert {("acme", name): (cost, 1, 0) for name, cost in estimates.items()} == counts(meter)

    outcome.spend(7, "parts")
    assert {} == counts(meter)
    outcome.spend(20, "parts")
    assert {("acme", "parts"): (17, 0, 0)} == counts(meter)
    outcome.finish(OK)
    assert {("acme", "estimate"): (-6, 0, 0), ("acme", "free"): (-1, 0, 0)} == counts(meter)


def test_what_an_application_settles_itself_is_counted(guard: Guard, meter: Meter) -> None:
    """Long after the response, by the reservation."""
    outcome = ask(guard, Rule(limits="100/hour", name="tokens", cost=10, settle=SPENT))
    outcome.finish(OK)
    counts(meter)
    (ruling,) = outcome.rulings
    assert ruling.reservation is not None
    ruling.reservation.settle(3)
    ruling.reservation.settle(50)

    assert {("acme", "tokens"): (-7, 0, 0)} == counts(meter)


def test_a_refused_request_costs_nothing_and_counts_as_refused(guard: Guard, meter: Meter) -> None:
    """By each of its limits; also one that no limit could ever admit."""
    wide, tight = Rule(limits="9/hour", name="wide"), Rule(limits="1/hour", name="tight")
    declared = [guard.declare(wide), guard.declare(tight)]
    answers = [bool(guard.check(request_of(), declared)) for _ in range(3)]
    dear = ask(guard, Rule(limits="5/hour", name="dear", cost=lambda: 9))

    assert [True, False, False] == answers
    assert not dear
    assert {("acme", "wide"): (1, 1, 2), ("acme", "tight"): (1, 1, 2), ("acme", "dear"): (0, 0, 1)} == counts(meter)


def test_a_request_that_a_later_check_refuses_is_taken_back(guard: Guard, meter: Meter) -> None:
    """The charge of an earlier check is given back, once; the request was admitted by none."""
    outcomes: list[Outcome] = []
    go_on(outcomes, ask(guard, Rule(limits="9/hour", name="fixed", cost=2)))
    go_on(outcomes, ask(guard, Rule(limits="9/hour", name="settled", cost=3, settle=SPENT)))
    go_on(outcomes, ask(guard, Rule(limits="9/hour", name="shadow", shadow=True)))
    earlier = list(outcomes)
    ask(guard, Rule(limits="1/hour", name="tight"))
    go_on(outcomes, ask(guard, Rule(limits="1/hour", name="tight")))
    for each in earlier:
        each.take_back()
        each.finish(OK)

    expected = {"fixed": (0, 0, 1), "settled": (0, 0, 1), "shadow": (0, 0, 0), "tight": (1, 1, 1)}
    assert {("acme", name): each for name, each in expected.items() if any(each)} == counts(meter)


def test_a_limit_that_charges_nothing_is_not_counted(guard: Guard, meter: Meter, agent: Agent) -> None:
    """One that is off, or in shadow and used up, by rule or by switch; what a shadow charges is counted."""
    rules = {
        "off": Rule(limits="2/hour", name="off"),
        "switched": Rule(limits="2/hour", name="switched"),
        "shadow": Rule(limits="2/hour", name="shadow", shadow=True),
    }
    declared = {name: guard.declare(rule) for name, rule in rules.items()}
    agent.limiter("off").switch("off")
    agent.limiter("switched").switch("shadow")
    answers = [bool(guard.check(request_of(), list(declared.values()))) for _ in range(5)]

    assert [True] * 5 == answers
    assert {("acme", "switched"): (2, 2, 0), ("acme", "shadow"): (2, 2, 0)} == counts(meter)


def test_a_limit_that_is_off_gives_nothing_back(guard: Guard, meter: Meter, agent: Agent) -> None:
    """A charge from before it was switched off stays when a request is taken back."""
    declared = [guard.declare(Rule(limits="5/hour", name="off"))]
    guard.check(request_of(), declared)
    agent.limiter("off").switch("off")
    guard.check(request_of(), declared).take_back()

    assert 1 == agent.limiter("off").usage("acme").own
    assert {("acme", "off"): (1, 1, 0)} == counts(meter)


def test_the_identity_is_the_key_without_scope_route_and_method(guard: Guard, meter: Meter) -> None:
    """Which are told by the route, or not at all."""
    ask(guard, Rule(limits="9/hour", name="scoped", scope="api", per_route=True, per_method=True))

    (taken,) = meter.take()
    assert ("acme", "scoped", "/items") == taken.key


def test_the_route_is_the_pattern_of_a_rules_own_path_where_there_is_no_other(guard: Guard, meter: Meter) -> None:
    """However many paths it stands for."""
    rule = Rule(limits="9/hour", name="items", paths=["/items/{number}"])
    for number in range(2):
        ask(guard, rule, request=PlainRequest(path=f"/items/{number}", headers={"x-customer": "acme"}))

    assert {"/items/{number}"} == {each.key.route for each in meter.take()}


@pytest.mark.parametrize("missing", ["address", "shared"])
def test_requests_without_a_key_are_one_identity(guard: Guard, meter: Meter, missing: str) -> None:
    """However many addresses they come from; each address has its own count in the limit all the same."""
    rule = Rule(limits="100/hour", name="api", missing=missing)
    for number in range(50):
        ask(guard, rule, request=request_of(None, client=f"192.0.2.{number}"))

    assert {("(no key)", "api"): (50, 50, 0)} == counts(meter)


def test_what_clients_make_up_is_bounded(guard: Guard, meter: Meter) -> None:
    """A key with NUL in it is counted under "(others)"; a path that leads nowhere has no row of its own."""
    rule = Rule(limits="100/hour", name="api")
    ask(guard, rule, request=request_of("a\x00b"))
    for number in range(9):
        ask(guard, rule, request=PlainRequest(path=f"/.env{number}", headers={"x-customer": "acme"}))

    found = meter.take()
    assert {(OTHERS, "/items"), ("acme", "")} == {(each.key.identity, each.key.route) for each in found}
    assert {1, 9} == {each.counts.cost for each in found}


def test_prices_are_those_of_the_first_quota(guard: Guard, meter: Meter) -> None:
    """Where several quotas have other prices for the kind of a request, also when it is settled."""
    quotas = [
        Limit(100, 3600, name="hour", costs={"GET": 3, "POST": 5}),
        Limit(500, 86400, name="day", costs={"GET": 1, "POST": 9}),
    ]
    rule = Rule(limits=guard.agent.limit("priced", quotas), cost=4, settle=lambda _: 1)
    outcome = ask(guard, rule)
    assert {("acme", "priced"): (12, 1, 0)} == counts(meter)

    outcome.finish(OK)
    assert {("acme", "priced"): (-9, 0, 0)} == counts(meter)
    charged = {name: each.own for name, each in guard.agent.limiter("priced").usages("acme").items()}
    assert {"priced#hour": 3, "priced#day": 1} == charged


# -------------------------------------------------------------------- contracts


PLANS: dict[str, Any] = {"free": {"limits": {"requests": "3/hour", "user": {"limit": "9/hour", "by": ["client"]}}}}


def test_contracts_are_counted_by_customer_and_by_the_names_of_their_limits(guard: Guard, meter: Meter) -> None:
    """The names are the same with any facts.

    A former limit holds beside its successor, and is not counted beside it.
    """
    former = [{"name": "requests", "limit": "40/day", "until": "2090-01-01T00:00:00Z"}]
    document = {"plans": PLANS, "customers": {"acme": {"plan": "free", "former": former}}}
    contracts = Contracts(guard.agent, document, meter=meter)
    declared = [guard.declare(Rule(limits=contracts, facts={"client": lambda request: request.client}))]
    answers = [bool(guard.check(request_of(), declared)) for _ in range(4)]

    assert [True, True, True, False] == answers
    assert {("acme", "requests"): (3, 3, 1), ("acme", "user"): (3, 3, 1)} == counts(meter)


@pytest.mark.parametrize("has_one", [True, False])
def test_contracts_with_a_meter_need_a_guard_with_the_same(agent: Agent, meter: Meter, has_one: bool) -> None:
    """Else what requests are charged would be missing in it."""
    guard = Guard(agent, meter=Meter() if has_one else None)
    contracts = Contracts(agent, {"plans": {"free": {"limits": {"requests": "3/hour"}}}}, meter=meter)
    with pytest.raises(InvalidSetting, match="give the guard the same meter="):
        guard.declare(Rule(limits=contracts))


def test_contracts_that_a_switch_has_turned_off_are_not_counted(meter: Meter, agent: Agent) -> None:
    """Asked directly as well: a limit that is off charges nothing."""
    contracts = Contracts(
        agent, {"plans": {"free": {"limits": {"requests": "3/hour"}}}, "unknown": "free"}, meter=meter
    )
    contracts.hit("acme")
    for _, limiter in contracts.standing("acme").parts:
        limiter.switch("off")
    contracts.hit("acme")

    assert {("acme", "requests"): (1, 1, 0)} == counts(meter)


# -------------------------------------------------------------------- what goes wrong, addresses and load


@pytest.mark.parametrize("wrong", ["redis://localhost", "a reporter"])
def test_what_is_no_meter_is_an_error_that_says_so(agent: Agent, wrong: str) -> None:
    """Also the reporter of one, and for functions."""
    given: Any = UsageReporter(Meter(), MemoryHub()) if wrong == "a reporter" else wrong
    with pytest.raises(InvalidSetting, match=r"write meter = Meter\(\)"):
        Guard(agent, meter=given)
    with pytest.raises(InvalidSetting, match=r"write meter = Meter\(\)"):
        limited("1/hour", agent=agent, meter=given)


def test_a_meter_that_fails_breaks_no_request(guard: Guard, meter: Meter, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard counts it."""

    def fail(*_arguments: Any, **_more: Any) -> None:
        raise HubUnavailable("test", "it fails")

    outcome = ask(guard, Rule(limits="9/hour", name="tokens", cost=4, settle=SPENT))
    for name in ("add", "amend", "join_requests"):
        monkeypatch.setattr(meter, name, fail)
    outcome.spend(9)
    outcome.finish(OK)
    assert ask(guard, Rule(limits="9/hour", name="api"))
    assert {"HubUnavailable": 2} == guard.stats().failures


def test_addresses_are_watched_by_identity(guard: Guard, meter: Meter, agent: Agent) -> None:
    """Not of requests without a key, nor where the address is the key."""
    by_address = Guard(agent, meter=meter)
    meter.addresses.begin_with(b"the same in every run")
    for number in range(40):
        client = f"198.51.100.{number}"
        ask(guard, Rule(limits="100/hour", name="api"), request=request_of(client=client))
        ask(guard, Rule(limits="100/hour", name="api"), request=request_of(None, client=client))
        ask(by_address, Rule(limits="100/hour", name="login"), request=request_of(client=client))

    assert 36 <= meter.addresses.estimate("acme") <= 44
    assert {"acme"} == set(meter.addresses.unusual(least=1))


def test_the_load_of_a_node_counts_each_request_once(clock: ManualClock, agent: Agent) -> None:
    """However many limits it has, whatever they count by, and in however many checks they are asked."""
    hub = MemoryHub(clock=clock)
    node = MeteredNode(hub.usage, clock, "node")
    guard = Guard(agent, key_func=BY_CUSTOMER, meter=node.meter)
    rules = [
        Rule(limits="9/hour", name="one"),
        Rule(limits="99/hour", name="other", cost=3),
        Rule(limits="4/hour", name="address", key_func=lambda request: request.client),
    ]
    for _ in range(10):
        outcomes: list[Outcome] = []
        for checked in (rules[:2], rules[2:]):
            if not go_on(outcomes, ask(guard, *checked)):
                break
    clock.advance(10)
    asyncio.run(node.driver.report())

    (load,) = asyncio.run(fleet_load(hub.usage))
    assert ("node", 1.0, (1 + 3 + 1) * 4 / 10) == load[:3]
