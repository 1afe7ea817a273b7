"""Goal: at every moment a customer has the limits that its contract says for then, and it is known until when.

Method: both sides of every edge of a plan that ends, of an override, a switch and a former limit; drawn documents for
what holds between two edges.
"""

from __future__ import annotations

from math import inf, nextafter
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reconverge import Limit
from reconverge.contracts.document import checked
from reconverge.contracts.model import REFUSED, Document, Switching
from reconverge.contracts.terms import Term, Terms, is_among, switch_at, terms_of
from tests.support.drawn_contracts import Table, documents

DAY_S = 86_400
SINCE = 1_700_000_000
PLANS: Table = {
    "free": {"limits": {"api": "50/s"}},
    "basic": {"limits": {"api": "100/s"}, "lasts": "P7D", "then": "free"},
    "trial": {"limits": {"api": "500/s", "export": "10/day"}, "lasts": "P14D", "then": "basic"},
    "slow": {"limits": {"api": "1000/day"}},
}
KEYS = [f"user-{number}" for number in range(10_000)]


def document(customer: Any = None, **more: Any) -> Document:
    """The plans, and one customer."""
    return checked({"plans": PLANS, "customers": {} if customer is None else {"ada": customer}, **more})


def since(seconds: int) -> str:
    """A moment that long after the first one, as a document says it."""
    days, rest = divmod(seconds, DAY_S)
    return f"2023-11-{14 + days:02}T{22 + rest // 3600:02}:13:20Z"


def at(customer: Any, now_s: float) -> tuple[str, float]:
    """The plan of a customer, and until when."""
    terms = terms_of(document(customer), "ada", now_s)
    return terms.plan, terms.until


def before(moment: float) -> float:
    """The last moment before one."""
    return nextafter(moment, -inf)


def test_unknown_customers_are_refused_or_on_a_plan() -> None:
    """The document decides; nothing else is planned for them."""
    free = Terms("free", (Term("api", Limit(50, 1), ("customer",), "free"),))

    assert Terms(REFUSED, ()) == terms_of(document(), "ada", SINCE)
    assert free == terms_of(document(unknown="free"), "ada", SINCE)


def test_a_plan_that_lasts_is_followed_by_its_next_to_the_moment() -> None:
    """A trial of 14 days, then 7 days of basic, then free."""
    trial = {"plan": "trial", "since": since(0)}
    ends, then_ends = SINCE + 14 * DAY_S, SINCE + 21 * DAY_S

    assert ("trial", ends) == at(trial, SINCE)
    assert ("trial", ends) == at(trial, before(ends))
    assert ("basic", then_ends) == at(trial, ends)
    assert ("basic", then_ends) == at(trial, before(then_ends))
    assert ("free", inf) == at(trial, then_ends)


def test_a_contract_that_ends_is_followed_by_its_plan_to_the_moment() -> None:
    """Also in the middle of a trial."""
    contract = {"plan": "trial", "since": since(0), "until": since(DAY_S), "then": "slow"}
    ends = SINCE + DAY_S

    assert ("trial", ends) == at(contract, before(ends))
    assert "slow" == at(contract, ends)[0]


def test_a_contract_that_ends_after_its_trial_has_the_plans_between() -> None:
    """And is over when it says, whichever plan it has come to."""
    contract = {"plan": "trial", "since": since(0), "until": since(15 * DAY_S), "then": "slow"}

    assert ("basic", SINCE + 15 * DAY_S) == at(contract, SINCE + 14 * DAY_S)
    assert "slow" == at(contract, SINCE + 15 * DAY_S)[0]


def test_what_a_customer_has_of_its_own_goes_with_it_from_plan_to_plan() -> None:
    """In place of the limit of that name, over the window that it says."""
    contract = {"plan": "trial", "since": since(0), "until": since(DAY_S), "then": "slow", "limits": {"api": "700/s"}}
    now, later = (terms_of(document(contract), "ada", moment) for moment in (SINCE, SINCE + DAY_S))

    assert [("api", Limit(700, 1), "own"), ("export", Limit(10, DAY_S), "trial")] == [
        (each.name, each.limit, each.tier) for each in now.terms
    ]
    assert [("api", Limit(700, 1), "own")] == [(each.name, each.limit, each.tier) for each in later.terms]


def test_an_own_limit_of_an_ended_plan_is_none() -> None:
    """A plan without a limit of that name has nothing to replace."""
    contract = {"plan": "trial", "since": since(0), "limits": {"export": "20/day"}}

    assert ["api"] == [each.name for each in terms_of(document(contract), "ada", SINCE + 14 * DAY_S).terms]


def test_a_former_limit_holds_beside_the_new_one_to_the_moment() -> None:
    """It is told when the next thing changes, and is gone then."""
    former = {"name": "api", "limit": "5/minute", "until": since(60 * 60)}
    contract = {"plan": "free", "former": [former]}
    ends = SINCE + 3600
    holding, over = (terms_of(document(contract), "ada", moment) for moment in (before(ends), ends))

    assert ([(50, False), (5, True)], ends) == (
        [(each.limit.quota, each.former) for each in holding.terms],
        holding.until,
    )
    assert ([(50, False)], inf) == ([(each.limit.quota, each.former) for each in over.terms], over.until)


@given(table=documents(), now_s=st.floats(min_value=0, max_value=5e9), part=st.floats(min_value=0, max_value=1))
def test_nothing_changes_before_it_is_said_to(table: Table, now_s: float, part: float) -> None:
    """Terms hold from the moment that is asked about until the one that they say."""
    drawn = checked(table)
    for identity in [*drawn.customers, "not named"]:
        terms = terms_of(drawn, identity, now_s)
        later_s = now_s + part * (min(terms.until, now_s + 10 * DAY_S) - now_s)
        assume(now_s <= later_s < terms.until)

        assert now_s < terms.until
        assert terms == terms_of(drawn, identity, later_s)


@given(table=documents(), now_s=st.floats(min_value=0, max_value=5e9))
def test_every_limit_of_the_plan_holds(table: Table, now_s: float) -> None:
    """Once each, by the plan's quota or by the customer's own, and counted by the plan's facts."""
    drawn = checked(table)
    for identity in drawn.customers:
        terms = terms_of(drawn, identity, now_s)
        plan = drawn.plans[terms.plan]

        assert [(name, each.by) for name, each in plan.limits.items()] == [
            (each.name, each.by) for each in terms.terms if not each.former
        ]
        assert all(
            each.limit == plan.limits[each.name].limit
            for each in terms.terms
            if each.tier == terms.plan and not each.former
        )


@pytest.mark.parametrize("percent", [0, 0.5, 1, 30, 50, 99, 100])
def test_a_percentage_of_the_keys_is_among_them(percent: float) -> None:
    """By their hash, so it is the same keys on all nodes; of many keys it is nearly that part."""
    among = sum(is_among(key, "api", percent) for key in KEYS)

    assert percent / 100 * len(KEYS) == pytest.approx(among, abs=0.02 * len(KEYS))
    assert among == {0.0: 0, 100.0: len(KEYS)}.get(float(percent), among)


@given(
    key=st.text(),
    name=st.sampled_from(["api", "export"]),
    percents=st.tuples(*[st.floats(min_value=0, max_value=100)] * 2).map(sorted),
)
def test_a_larger_part_holds_the_smaller_one(key: str, name: str, percents: list[float]) -> None:
    """A rollout that grows takes no key back."""
    smaller, larger = percents

    assert is_among(key, name, smaller) <= is_among(key, name, larger)


def test_the_part_of_one_limit_is_not_that_of_another() -> None:
    """The same clients would try all that is new, otherwise."""
    api, export = ({key for key in KEYS if is_among(key, name, 10)} for name in ("api", "export"))

    assert len(api & export) < len(api) / 2


def term(*switches: Switching) -> Term:
    """A limit with switches."""
    return Term("api", Limit(5, 60), ("customer",), "free", switches)


@pytest.mark.parametrize(
    ("switches", "word"),
    [
        ((), "on"),
        ((Switching("shadow"),), "shadow"),
        ((Switching("shadow"), Switching("off")), "off"),
        ((Switching("off"), Switching("on")), "off"),
        ((Switching("on"), Switching("shadow")), "shadow"),
    ],
)
def test_of_several_switches_the_one_that_refuses_least_counts(switches: tuple[Switching, ...], word: str) -> None:
    """Of the plan's limit, of the contract, and of the contract's limit."""
    assert word == switch_at(term(*switches), "ada", SINCE)


def test_a_switch_is_on_again_to_the_moment() -> None:
    """The moment that it says is the first at which it holds no more."""
    off = term(Switching("off", until=SINCE))

    assert ["off", "on"] == [switch_at(off, "ada", moment) for moment in (before(SINCE), SINCE)]


def test_a_switch_for_a_part_leaves_the_other_keys_on() -> None:
    """Exactly those that are not among the part."""
    half = term(Switching("off", percent=50))

    assert {key for key in KEYS if is_among(key, "api", 50)} == {
        key for key in KEYS if switch_at(half, key, SINCE) == "off"
    }


def test_all_switches_of_a_contract_are_in_its_terms() -> None:
    """The plan's, the contract's and the contract's for one limit, in this order."""
    plans = {"free": {"limits": {"api": {"limit": "5/s", "switch": "shadow"}}}}
    ada = {"plan": "free", "switch": "off", "switches": {"api": {"to": "on", "percent": 5}}}
    (only,) = terms_of(checked({"plans": plans, "customers": {"ada": ada}}), "ada", SINCE).terms

    assert (Switching("shadow"), Switching("off"), Switching("on", 5)) == only.switches
