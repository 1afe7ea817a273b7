"""Goal: a rehearsal tells of every request of a recording what two central limiters would have answered, and no more.

Method: small recordings of which the answer can be counted by hand, both sides of each edge; and drawn ones that are
decided a second time by limiters of an agent, which test every limit first and charge all of them only then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconverge import Agent
from reconverge.clock import SECOND_NS, ManualClock
from reconverge.contracts.central import NO_CONTRACT, CentralLimiter, CustomerRequest, Shape
from reconverge.contracts.document import checked
from reconverge.contracts.explaining import MissingFact
from reconverge.contracts.model import Document
from reconverge.contracts.rehearsal import HOUR_NS, Effect, LimitEffect, Rehearsal, RehearsalOutcome
from reconverge.errors import CostExceedsQuota, UnknownKind

MIDNIGHT_S = 1_699_920_000  # 2023-11-14T00:00:00Z
TOKENS = Shape(costs=("tokens",))


def document(customers: Any = None, unknown: str = "free", **limits: Any) -> Document:
    """One plan, which all have that are not named."""
    return checked({"unknown": unknown, "plans": {"free": {"limits": limits}}, "customers": customers or {}})


def request(second: float, customer: str = "ada", **more: Any) -> CustomerRequest:
    """A request so many seconds after midnight."""
    return CustomerRequest(round((MIDNIGHT_S + second) * SECOND_NS), customer, **more)


def rehearsed(
    current: Document | None, candidate: Document, requests: Iterable[CustomerRequest], shape: Shape | None = None
) -> RehearsalOutcome:
    rehearsal = Rehearsal(current, candidate, shape or Shape())
    for each in requests:
        rehearsal.see(each)
    return rehearsal.outcome()


def decided(
    contracts: Document, requests: Iterable[CustomerRequest], shape: Shape | None = None
) -> list[tuple[str, ...]]:
    """Which limits refuse each request."""
    central = CentralLimiter(contracts, shape or Shape())
    return [central.decide(each) for each in requests]


def admitted(contracts: Document, requests: Iterable[CustomerRequest], shape: Shape | None = None) -> list[bool]:
    """Whether each request is admitted."""
    return [not refusing for refusing in decided(contracts, requests, shape)]


def test_what_lies_beyond_half_of_the_quota_is_newly_refused() -> None:
    """Of twelve requests the quota of ten refuses two by both, and five are refused by the half of it alone."""
    requests = [request(second) for second in range(12)]

    outcome = rehearsed(document(api="10/minute"), document(api="5/minute"), requests)

    (effect,) = outcome.refused
    assert (12, 1, 5, 0, 2) == (
        outcome.requests,
        outcome.customers,
        outcome.newly_refused,
        outcome.newly_admitted,
        outcome.refused_by_both,
    )
    expected = Effect("ada", ("api",), 5, requests[5].moment_ns, requests[9].moment_ns, MIDNIGHT_S * SECOND_NS, 5, 12)
    assert expected == effect
    assert {"api": LimitEffect(refuses_now=2, would_refuse=7, newly_refused=5, newly_admitted=0)} == outcome.limits


def test_a_change_that_changes_nothing_refuses_and_admits_nothing() -> None:
    """Requests that both refuse are counted so."""
    outcome = rehearsed(document(api="5/minute"), document(api="5/60s"), map(request, range(12)))

    assert (0, 0, 7) == (outcome.newly_refused, outcome.newly_admitted, outcome.refused_by_both)
    assert not outcome.refused
    assert not outcome.admitted


def test_a_higher_quota_admits_newly_and_names_the_limit_that_refuses_now() -> None:
    """The effects of one customer and those of another are apart."""
    requests = [request(second, customer) for second in range(4) for customer in ("ada", "bob", "ada")]

    outcome = rehearsed(document(api="2/minute"), document(api="3/minute"), requests)

    assert [("ada", ("api",), 1), ("bob", ("api",), 1)] == [
        (effect.customer, effect.limits, effect.requests) for effect in outcome.admitted
    ]
    assert 0 == outcome.newly_refused


def test_without_limits_now_all_that_is_refused_is_newly_refused() -> None:
    """The first contracts that a service gets."""
    outcome = rehearsed(None, document(api="5/minute"), map(request, range(12)))

    assert (7, 0) == (outcome.newly_refused, outcome.refused_by_both)


def test_what_only_one_of_both_admits_is_charged_there_alone() -> None:
    """A lower budget refuses the large request, and therefore has room for the next one."""
    requests = [request(0, costs=(9,)), request(1, costs=(5,))]

    outcome = rehearsed(document(tokens="10/minute"), document(tokens="8/minute"), requests, TOKENS)

    assert [1, 1] == [effect.requests for effect in (*outcome.refused, *outcome.admitted)]
    assert requests[1].moment_ns == outcome.admitted[0].first_ns


def test_all_limits_that_refuse_are_named() -> None:
    """And a request that two limits refuse is one request, which counts for both."""
    requests = [request(0.1), request(0.2), request(5)]
    now, then = document(second="5/second", hour="5/hour"), document(second="1/second", hour="1/hour")

    outcome = rehearsed(now, then, requests)

    assert {("second", "hour"), ("hour",)} == {effect.limits for effect in outcome.refused}
    assert 2 == outcome.newly_refused
    assert (1, 2) == (outcome.limits["second"].newly_refused, outcome.limits["hour"].newly_refused)


def test_a_limit_without_room_for_a_new_key_is_named_beside_one_that_is_used_up() -> None:
    """A bucket that begins with one token has no two of them for a user that was never seen."""
    users = {"limit": "5/hour", "algorithm": "token-bucket", "initial": 1, "by": ["customer", "user"]}
    shape = Shape(facts=("user",), costs=("users",))
    requests = [request(0, facts=("x",), costs=(1,)), request(1, facts=("y",), costs=(2,))]

    assert [(), ("api", "users")] == decided(document(api="1/hour", users=users), requests, shape)


def test_unknown_customers_are_refused_where_the_document_says_so() -> None:
    """In place of a limit it is said that there is no contract."""
    contracts = document({"ada": "free"}, unknown="refused", api="10/minute")

    outcome = rehearsed(None, contracts, [request(0, "ada"), request(1, "eve")])

    assert [("eve", (NO_CONTRACT,))] == [(effect.customer, effect.limits) for effect in outcome.refused]


def test_a_customer_has_what_it_was_promised_in_place_of_the_plan() -> None:
    """And the others have the plan."""
    contracts = document({"ada": {"plan": "free", "limits": {"api": "3/minute"}}}, api="1/minute")
    requests = [request(second, customer) for second in range(4) for customer in ("ada", "bob")]

    assert [True, True, True, False, True, False, False, False] == admitted(contracts, requests)


def ending(until: str, trial: Any, then: Any) -> Document:
    """A customer whose trial ends, and is followed by another plan."""
    return checked(
        {
            "plans": {"trial": {"limits": {"api": trial}}, "free": {"limits": {"api": then}}},
            "customers": {"ada": {"plan": "trial", "until": f"2023-11-14T{until}Z", "then": "free"}},
        }
    )


@pytest.mark.parametrize("algorithm", ["sliding-log", "sliding-window", "fixed-window", "token-bucket"])
def test_what_was_used_stays_in_the_counts_when_a_plan_ends(algorithm: str) -> None:
    """Four of the trial's ten leave one of the next plan's five, from its moment on. The edge is the moment itself."""
    trial, free = ({"limit": limit, "algorithm": algorithm} for limit in ("10/hour", "5/hour"))
    contracts = ending("00:00:30", trial, free)

    assert [True] * 5 + [False] == admitted(contracts, map(request, [1, 2, 3, 4, 30, 31]))
    assert [True] * 6 + [False] == admitted(contracts, map(request, [1, 2, 3, 4, 5, 29.999999, 30]))


def test_a_limit_that_is_counted_otherwise_begins_with_nothing_used() -> None:
    """All five of the new plan's are there, whatever was used of the trial's."""
    contracts = ending("00:00:30", "10/minute", "5/hour")

    assert [True] * 4 + [True] * 5 + [False] == admitted(contracts, map(request, [1, 2, 3, 4, 31, 32, 33, 34, 35, 36]))


def test_a_former_limit_holds_beside_the_new_one_until_it_ends() -> None:
    """Both refuse under one name, which is told once."""
    former = {"name": "api", "until": "2023-11-14T00:01:00Z", "limit": "2/minute"}
    contracts = document({"ada": {"plan": "free", "former": [former]}}, api="3/hour")

    found = decided(contracts, map(request, [1, 2, 3, 61, 62]))

    assert [(), (), ("api",), (), ("api",)] == found


def test_each_user_of_a_customer_has_a_count_where_a_limit_says_so() -> None:
    """Two users of one name at two customers are two, whatever characters the names have."""
    contracts = document(users={"limit": "1/minute", "by": ["customer", "user"]})
    users = [("ada", "x|y"), ("ada|x", "y"), ("ada", "x%7Cy"), ("bob", "x|y"), ("ada", "x|y")]
    requests = [request(second, name, facts=(user,)) for second, (name, user) in enumerate(users)]

    assert [True, True, True, True, False] == admitted(contracts, requests, Shape(facts=("user",)))


def test_customers_share_a_count_that_leaves_the_customer_out() -> None:
    """Customers of different plans share it, too."""
    shared = {"limit": "2/minute", "by": "region"}
    contracts = checked(
        {
            "plans": {"free": {"limits": {"all": shared}}, "pro": {"limits": {"all": shared}}},
            "customers": {"ada": {"plan": "free", "until": "2023-11-14T00:00:02Z", "then": "pro"}, "bob": "pro"},
        }
    )
    requests = [request(0, "ada", facts=("eu",)), request(1, "bob", facts=("eu",)), request(3, "ada", facts=("eu",))]

    assert [True, True, False] == admitted(contracts, requests, Shape(facts=("region",)))


def test_a_fact_that_the_recording_does_not_tell_is_missed_by_name() -> None:
    """The limit is told, too."""
    contracts = document(users={"limit": "1/minute", "by": ["customer", "user"]})

    with pytest.raises(MissingFact, match="'users' counts by 'user', which the recording does not contain"):
        decided(contracts, [request(0)])


def test_a_request_costs_what_its_kind_does() -> None:
    """Of the limits that have costs by kind; of another one it costs 1."""
    contracts = document(work={"limit": "10/minute", "costs": {"GET": 1, "POST": 5}}, api="10/minute")
    posts = [request(second, kind="POST") for second in range(3)]

    assert [(), (), ("work",)] == decided(contracts, posts)
    with pytest.raises(UnknownKind, match="knows no kind 'HEAD'"):
        decided(contracts, [request(0, kind="HEAD")])


@pytest.mark.parametrize(("second", "refusing"), [(4.999999, ()), (5, ("tokens",))])
def test_what_a_request_turns_out_to_cost_is_charged_when_it_is_over(second: float, refusing: tuple[str, ...]) -> None:
    """Not before five seconds have passed, and at that moment before another request is decided."""
    shape = Shape(costs=("tokens",), settles=("tokens",), settle_after_ns=5 * SECOND_NS)
    requests = [request(0, costs=(4,), settles=(6,)), request(second, costs=(1,), settles=(0,))]

    assert [(), refusing] == decided(document(tokens="10/minute"), requests, shape)


def test_what_was_refused_costs_nothing_afterwards() -> None:
    """It has not happened."""
    shape = Shape(costs=("*",), settles=("*",), settle_after_ns=SECOND_NS)
    requests = [
        request(0, costs=(8,), settles=(0,)),
        request(1, costs=(8,), settles=(2,)),
        request(9, costs=(2,), settles=(0,)),
    ]

    assert [True, False, True] == admitted(document(tokens="10/minute"), requests, shape)


def test_a_limit_in_shadow_refuses_nothing_and_one_that_is_off_is_not_asked() -> None:
    """A limit in shadow is charged, as its switch may end."""
    shadow = {"to": "shadow", "until": "2023-11-14T00:00:10Z"}
    off = {"to": "off", "until": "2023-11-14T00:00:10Z"}
    seconds = [1, 2, 3, 11, 12, 13]

    in_shadow = admitted(document(api={"limit": "2/minute", "switch": shadow}), map(request, seconds))
    while_off = admitted(document(api={"limit": "2/minute", "switch": off}), map(request, seconds))

    assert [True, True, True, False, False, False] == in_shadow
    assert [True, True, True, True, True, False] == while_off


def test_a_paced_limit_of_any_plan_stores_permits_from_the_beginning_of_the_recording() -> None:
    """Five of a second's, and one on credit; not only since the first request of a customer on that plan."""
    smooth = {"limit": "5/second", "algorithm": "smooth-bursty"}
    plans = {"paced": {"limits": {"smooth": smooth}}, "free": {"limits": {"api": "1/second"}}}
    paced = checked({"unknown": "free", "plans": plans, "customers": {"ada": "paced"}})

    assert [True] * 7 + [False] == admitted(paced, [request(0, "zoe"), *[request(10)] * 7])


@pytest.mark.parametrize(
    ("hours", "busiest", "inside"),
    [([0, 1, 1, 2], 1, 2), ([0, 0, 1, 2, 2], 0, 2), ([3], 3, 1), ([0, 1, 1, 1, 4, 4], 1, 3)],
)
def test_the_busiest_hour_is_the_first_of_those_with_most_requests(
    hours: Sequence[int], busiest: int, inside: int
) -> None:
    """Hours begin as they do on a clock."""
    requests = [request(0)] + [request(hour * 3600 + 1 + place) for place, hour in enumerate(hours)]

    (effect,) = rehearsed(None, document(api="1/day"), requests).refused

    assert (MIDNIGHT_S * SECOND_NS + busiest * HOUR_NS, inside) == (effect.busiest_ns, effect.in_busiest)


def test_the_effects_on_most_requests_come_first_and_then_go_by_name() -> None:
    """So two runs say the same in the same order."""
    names = ["cat", "cat", "bob", "bob", "ada", "ada", "dan", "dan", "dan"]

    outcome = rehearsed(None, document(api="1/hour"), [request(at, name) for at, name in enumerate(names)])

    assert ["dan", "ada", "bob", "cat"] == [effect.customer for effect in outcome.refused]


LIMITS: dict[str, Any] = {
    "sliding": {"limit": "6/10s"},
    "bucket": {"limit": "20/minute burst 8", "algorithm": "token-bucket"},
    "log": {"limit": "9/20s", "algorithm": "sliding-log"},
    "fixed": {"limit": "12/30s", "algorithm": "fixed-window"},
    "smooth": {"limit": "5/second", "algorithm": "smooth-bursty"},
}
ARRIVALS = st.lists(
    st.tuples(st.integers(0, 4_000_000_000), st.sampled_from(["ada", "bob"]), st.integers(0, 13)), max_size=60
)


@settings(deadline=None)
@given(arrivals=ARRIVALS, names=st.lists(st.sampled_from(sorted(LIMITS)), min_size=1, unique=True))
def test_every_request_is_answered_as_limiters_of_an_agent_do(
    arrivals: list[tuple[int, str, int]], names: list[str]
) -> None:
    """Each is tested first, and all are charged only if none refuses; so the limits that refuse are the same."""
    clock = ManualClock(MIDNIGHT_S)
    agent = Agent("memory://", clock=clock, policy="strict")
    limiters = {
        name: agent.limit(name, LIMITS[name]["limit"], algorithm=LIMITS[name].get("algorithm")) for name in names
    }
    central = CentralLimiter(document(**{name: LIMITS[name] for name in names}), Shape(costs=("*",)))

    assert () == central.decide(CustomerRequest(clock.wall_ns(), "zoe", costs=(0,)))  # limits begin with the recording
    for gap_ns, customer, cost in arrivals:
        clock.advance_ns(gap_ns)
        expected = tuple(name for name in names if not admits(limiters[name].test, customer, cost))
        if not expected:
            for limiter in limiters.values():
                assert limiter.allow(customer, cost)
        assert expected == central.decide(CustomerRequest(clock.wall_ns(), customer, costs=(cost,)))


def admits(test: Any, customer: str, cost: int) -> bool:
    """Whether a limiter would admit a request; a cost that is too large for it never."""
    try:
        return bool(test(customer, cost))
    except CostExceedsQuota:
        return False
