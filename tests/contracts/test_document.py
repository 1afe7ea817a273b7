"""Goal: a contracts document is what it says, says what it is, and names the field of each mistake.

Method: drawn documents are written and read back; a table of mistakes, each with the path that the error must have.
"""

from __future__ import annotations

import json
from copy import deepcopy
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconverge import Limit
from reconverge.contracts.differences import differences
from reconverge.contracts.document import checked, checked_customer
from reconverge.contracts.model import (
    CUSTOMERS_MAX,
    FACTS_MAX,
    FOLLOWING_MAX,
    FORMER_MAX,
    IDENTITY_BYTES_MAX,
    LASTS_MAX_S,
    LIMITS_MAX,
    NOTE_LENGTH_MAX,
    PLANS_MAX,
    Customer,
    Document,
    InvalidContracts,
    Plan,
    PlanLimit,
    Switching,
    counts_for_s,
    overridden,
    same_cells,
)
from reconverge.contracts.writing import table_of, table_of_customer
from tests.support.drawn_contracts import Table, documents

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
GOOD: Table = {
    "unknown": "free",
    "plans": {
        "free": {"limits": {"api": "50/s"}},
        "pro": {"limits": {"api": {"limit": "1000/s", "soft": "10%", "costs": {"GET": 1, "*": 2}}}},
        "trial": {"limits": {"api": "1000/s"}, "lasts": "P14D", "then": "free"},
    },
    "customers": {
        "ada": "pro",
        "bob": {"plan": "trial", "since": "2026-11-23T12:00:00Z", "limits": {"api": "70/s"}},
    },
}


def changed(path: str, value: Any) -> Table:
    """The good document with another value at one place; a place that is not there comes into being."""
    table = deepcopy(GOOD)
    at: Any = table
    *above, last = path.split(".")
    for name in above:
        at = at[name]
    at[last] = value
    return table


def mistake(said: object) -> InvalidContracts:
    """Returns the mistake in a document."""
    with pytest.raises(InvalidContracts) as caught:
        checked(said)
    return caught.value


@given(table=documents())
def test_what_is_written_is_read_back(table: Table) -> None:
    """A document as a table, also on its way through JSON, is the same document."""
    document = checked(table)

    assert document == checked(table_of(document))
    assert document == checked(json.loads(json.dumps(table_of(document))))
    assert [] == differences(document, checked(table_of(document)))


@given(table=documents())
def test_a_customer_is_written_and_read_by_itself(table: Table) -> None:
    """Changes of single customers do so."""
    document = checked(table)

    assert document.customers == {
        identity: checked_customer(identity, table_of_customer(each), document.plans)
        for identity, each in document.customers.items()
    }


def test_a_document_is_read_as_it_is_meant() -> None:
    """Short forms are what their long forms are."""
    api = Limit(1000, 1, soft=0.1, costs={"GET": 1, "*": 2})
    expected = Document(
        {
            "free": Plan({"api": PlanLimit(Limit(50, 1))}),
            "pro": Plan({"api": PlanLimit(api)}),
            "trial": Plan({"api": PlanLimit(Limit(1000, 1))}, lasts=14 * 86_400, then="free"),
        },
        {"ada": Customer("pro"), "bob": Customer("trial", {"api": "70/s"}, since=NOON.timestamp())},
        "free",
    )

    assert expected == checked(GOOD)


@pytest.mark.parametrize("written", ["2026-11-23T12:00:00Z", "2026-11-23T13:00:00+01:00", "2026-11-23 12:00", NOON])
def test_a_moment_is_utc_unless_it_says_otherwise(written: object) -> None:
    """Text, YAML and TOML agree."""
    assert NOON.timestamp() == checked(changed("customers.bob.since", written)).customers["bob"].since


def test_a_day_is_its_midnight() -> None:
    """However it is written."""
    midnight = NOON.replace(hour=0).timestamp()
    for written in ("2026-11-23", date(2026, 11, 23)):
        assert midnight == checked(changed("customers.bob.since", written)).customers["bob"].since


@pytest.mark.parametrize("written", ["off", {"to": "off"}, False, {"to": False, "percent": 100}])
def test_a_switch_is_a_word_or_a_table(written: object) -> None:
    """YAML reads off as false."""
    assert Switching("off") == checked(changed("customers.bob.switch", written)).customers["bob"].switch


def test_a_field_of_null_says_nothing() -> None:
    """An empty value in YAML is null."""
    fields = ("since", "until", "then", "switch", "switches", "former", "note", "limits")
    table = changed("customers.ada", {"plan": "free", **dict.fromkeys(fields)})
    table["plans"]["free"]["lasts"] = None
    table["plans"]["free"]["limits"]["api"] = {"limit": "50/s", "by": None, "switch": None, "soft": None, "costs": None}

    assert Customer("free") == checked(table).customers["ada"]
    assert {} == checked({"plans": GOOD["plans"], "customers": None, "unknown": None}).customers


MISTAKES: dict[str, tuple[Table, str, str]] = {
    "no plans": ({}, "plans", "is missing"),
    "an empty table of plans": ({"plans": {}}, "plans", "is empty"),
    "a list of plans": ({"plans": []}, "plans", "must be a table"),
    "a plan of a name that stands for none": (
        changed("plans.refused", GOOD["plans"]["free"]),
        "plans.refused",
        "without a plan",
    ),
    "a plan of an odd name": (changed("plans.a b", GOOD["plans"]["free"]), "plans.a b", "use letters"),
    "a misspelt field": (changed("plan", {}), "plan", "did you mean 'plans'?"),
    "a plan without limits": (changed("plans.free", {}), "plans.free.limits", "is missing"),
    "no limit at all": (changed("plans.free.limits", {}), "plans.free.limits", "is empty; at least 1 must be there"),
    "a wrong unit": (changed("plans.free.limits.api", "5/fortnight"), "plans.free.limits.api.limit", "unknown unit"),
    "a number": (changed("plans.free.limits.api", 5), "plans.free.limits.api.limit", "must be text, not 5"),
    "two quotas": (changed("plans.free.limits.api", "5/s; 9/h"), "plans.free.limits.api.limit", "several quotas"),
    "no limit string": (changed("plans.free.limits.api", {"soft": 1}), "plans.free.limits.api.limit", "is missing"),
    "an algorithm that there is not": (
        changed("plans.free.limits.api", {"limit": "5/s", "algorithm": "leaky"}),
        "plans.free.limits.api.algorithm",
        "unknown algorithm",
    ),
    "slices where there are none": (
        changed("plans.free.limits.api", {"limit": "5/s", "algorithm": "fixed-window", "slices": 5}),
        "plans.free.limits.api.slices",
        "slices go with",
    ),
    "a zone without a calendar": (
        changed("plans.free.limits.api", {"limit": "5/s", "timezone": "Europe/Berlin"}),
        "plans.free.limits.api.timezone",
        "goes with align='calendar'",
    ),
    "a soft quota of nothing": (
        changed("plans.free.limits.api", {"limit": "5/s", "soft": 0.1}),
        "plans.free.limits.api.soft",
        "write at least 0.2",
    ),
    "a percentage that is none": (
        changed("plans.free.limits.api", {"limit": "5/s", "soft": "ten"}),
        "plans.free.limits.api.soft",
        "like '10%'",
    ),
    "a cost that can never be admitted": (
        changed("plans.free.limits.api", {"limit": "5/s", "costs": {"GET": 6}}),
        "plans.free.limits.api.costs.GET",
        "5 is the most at once",
    ),
    "a fact that is none": (
        changed("plans.free.limits.api", {"limit": "5/s", "by": ["a-b"]}),
        "plans.free.limits.api.by",
        "cannot be a fact's name",
    ),
    "a fact twice": (
        changed("plans.free.limits.api", {"limit": "5/s", "by": ["user", "user"]}),
        "plans.free.limits.api.by",
        "names the same fact twice",
    ),
    "a name that counts by something else in another plan": (
        changed("plans.free.limits.api", {"limit": "50/s", "by": "user"}),
        "plans.pro.limits.api.by",
        "counts by customer here, and by user in the plan 'free'",
    ),
    "two quotas for one count": (
        {
            "plans": {
                name: {"limits": {"all": {"limit": f"{n}/s", "by": "user"}}} for n, name in enumerate(("a", "b"), 1)
            }
        },
        "plans.b.limits.all",
        "write the same limit in all plans",
    ),
    "a plan that lasts and is followed by none": (
        changed("plans.free.lasts", "P1D"),
        "plans.free.then",
        "has no effect without it",
    ),
    "a plan that is followed and does not last": (
        changed("plans.free.then", "pro"),
        "plans.free.lasts",
        "has no effect without it",
    ),
    "a plan that lasts for no time": (changed("plans.trial.lasts", 0), "plans.trial.lasts", "must be above zero"),
    "a plan that lasts for ever": (changed("plans.trial.lasts", float("inf")), "plans.trial.lasts", "a hundred years"),
    "a plan that lasts a month": (changed("plans.trial.lasts", "P1M"), "plans.trial.lasts", "P30D or P31D"),
    "plans in a circle": (
        changed("plans.free", {**GOOD["plans"]["free"], "lasts": 1, "then": "trial"}),
        "plans.free.then",
        "leads back",
    ),
    "a plan that there is not": (changed("customers.ada", "pros"), "customers.ada.plan", "did you mean 'pro'?"),
    "no plan": (changed("customers.ada", {}), "customers.ada.plan", "is missing"),
    "no customer": (changed("customers.ada", 5), "customers.ada", "must be a table"),
    "a customer without a name": ({**GOOD, "customers": {"": "pro"}}, "customers", "no name of a customer"),
    "a number for a customer": ({**GOOD, "customers": {5: "pro"}}, "customers", "put it into quotes"),
    "an unknown plan for the unknown": (changed("unknown", "fre"), "unknown", "did you mean 'free'?"),
    "a plan that ends for the unknown": (changed("unknown", "trial"), "unknown", "ends after a time"),
    "a trial since never": (changed("customers.ada", "trial"), "customers.ada.since", "is missing"),
    "an end without a plan": (
        changed("customers.ada", {"plan": "pro", "until": "2027-01-01"}),
        "customers.ada.then",
        "has no effect without it",
    ),
    "a plan without an end": (
        changed("customers.ada", {"plan": "pro", "then": "free"}),
        "customers.ada.until",
        "has no effect without it",
    ),
    "a trial that follows": (
        changed("customers.ada", {"plan": "pro", "until": "2027-01-01", "then": "trial"}),
        "customers.ada.then",
        "`then` must not name it",
    ),
    "a moment that is none": (changed("customers.bob.since", "soon"), "customers.bob.since", "is no moment"),
    "a moment before all": (changed("customers.bob.since", "0001-01-01"), "customers.bob.since", "1970"),
    "a number for a moment": (changed("customers.bob.since", 5), "customers.bob.since", "must be a moment"),
    "a limit that the plan has not": (
        changed("customers.bob.limits", {"apis": "5/s"}),
        "customers.bob.limits.apis",
        "'api'",
    ),
    "an override that is none": (
        changed("customers.bob.limits.api", "5"),
        "customers.bob.limits.api",
        "'/', 'per' or 'in flight'",
    ),
    "an override of nothing": (
        changed("customers.bob.limits.api", None),
        "customers.bob.limits.api",
        "must be a table",
    ),
    "a burst where the plan has no bucket": (
        changed("customers.bob.limits.api", "5/s burst 9"),
        "customers.bob.limits.api",
        "a burst needs a bucket",
    ),
    "a word that is no switch": (changed("customers.bob.switch", "of"), "customers.bob.switch.to", "must be 'on'"),
    "more than all": (
        changed("customers.bob.switch", {"to": "off", "percent": 101}),
        "customers.bob.switch.percent",
        "less than or equal to 100",
    ),
    "a switch of another limit": (
        changed("customers.bob.switches", {"x": "off"}),
        "customers.bob.switches.x",
        "no limit",
    ),
    "a former limit without an end": (
        changed("customers.bob.former", [{"name": "api", "limit": "5/s"}]),
        "customers.bob.former.0.until",
        "is missing",
    ),
    "a note that is none": (changed("customers.bob.note", 5), "customers.bob.note", "must be text"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_told_by_its_field(case: str) -> None:
    """With the path to it, and what to say instead."""
    table, path, problem = MISTAKES[case]

    error = mistake(table)

    assert path == ".".join(error.path)
    assert problem in error.problem
    assert f"{path}: {error.problem}" == str(error)


@pytest.mark.parametrize(
    ("table", "path"),
    [
        ({"plans": {f"p{n}": {"limits": {"a": "1/s"}} for n in range(PLANS_MAX + 1)}}, "plans"),
        (changed("plans.free.limits", {f"l{n}": "1/s" for n in range(LIMITS_MAX + 1)}), "plans.free.limits"),
        (changed("customers.bob.note", "x" * (NOTE_LENGTH_MAX + 1)), "customers.bob.note"),
        (
            changed(
                "customers.bob.former", [{"name": "api", "until": "2027-01-01", "limit": "1/s"}] * (FORMER_MAX + 1)
            ),
            "customers.bob.former",
        ),
        (
            changed("plans.free.limits.api", {"limit": "1/s", "by": [f"f{n}" for n in range(FACTS_MAX + 1)]}),
            "plans.free.limits.api.by",
        ),
        (changed("plans.trial.lasts", LASTS_MAX_S + 1), "plans.trial.lasts"),
        ({**GOOD, "customers": {"é" * (IDENTITY_BYTES_MAX // 2 + 1): "pro"}}, "customers"),
        ({**GOOD, "customers": dict.fromkeys(map(str, range(CUSTOMERS_MAX + 1)), "pro")}, "customers"),
    ],
    ids=["plans", "limits", "note", "former", "facts", "lasts", "identity", "customers"],
)
def test_everything_has_a_bound(table: Table, path: str) -> None:
    """One more than the most is refused at its field, in a message that is short."""
    error = mistake(table)

    assert path == ".".join(error.path)
    assert len(str(error)) < 1000


def test_the_most_is_possible() -> None:
    """Of what is cheap to say."""
    table = changed("plans.free.limits", {"api": "1/s"} | {f"l{n}": "1/s" for n in range(LIMITS_MAX - 1)})
    table["customers"] = {"é" * (IDENTITY_BYTES_MAX // 2): {"plan": "free", "note": "x" * NOTE_LENGTH_MAX}}
    table["plans"]["trial"] |= {"lasts": LASTS_MAX_S}

    assert LIMITS_MAX == len(checked(table).plans["free"].limits)


def test_sixteen_plans_may_follow_a_plan() -> None:
    """A customer's own limits are read against each of them: a thousand made a small document the work of minutes."""

    def chained(following: int) -> Table:
        lasting = {"lasts": "P1D", "limits": {"api": "1/s"}}
        plans = {f"p{each}": {**lasting, "then": f"p{each + 1}"} for each in range(following)}
        plans[f"p{following}"] = {"limits": {"api": "1/s"}}
        return {"plans": plans, "customers": {"ada": {"plan": "p0", "since": "2026-01-01", "limits": {"api": "2/s"}}}}

    assert FOLLOWING_MAX + 1 == len(checked(chained(FOLLOWING_MAX)).plans)
    with pytest.raises(InvalidContracts, match=r"plans\.p0\.then: is followed by more than 16 plans"):
        checked(chained(FOLLOWING_MAX + 1))


def test_a_path_breaks_no_line_and_commands_no_terminal() -> None:
    """Names come from outside."""
    error = mistake({"plans": {"\x1b[31m\n": {}}})

    assert "\x1b" not in str(error).partition(":")[0]
    assert "\n" not in str(error).partition(":")[0]


def test_an_override_over_another_window_is_all_of_a_limit() -> None:
    """Over the plan's window text says quota and burst alone."""
    table = changed("customers.bob.limits.api", "70/minute")
    (own,) = checked(table).customers["bob"].limits.values()

    assert Limit(70, 60) == own
    assert Limit(70, 1, soft=0.5) == overridden(Limit(100, 1, soft=0.5), "70/s")
    assert Limit(70, 60) == overridden(Limit(100, 1, soft=0.5), "70/minute")


def test_an_override_that_is_all_of_a_limit_is_written_as_that() -> None:
    """Text would be counted as the plan's limit is when it is read back."""
    table = changed("plans.trial.limits.api", {"limit": "1000/s", "algorithm": "fixed-window"})
    table["customers"]["bob"]["limits"]["api"] = {"limit": "70/s"}
    document = checked(table)

    assert {"api": {"limit": "70/1s"}} == table_of(document)["customers"]["bob"]["limits"]
    assert document == checked(table_of(document))


def test_an_override_makes_sense_in_every_plan_that_follows() -> None:
    """A burst for a bucket is none for the window that the next plan has, and is told when it is written."""
    table = changed("plans.trial.limits.api", "1000/s burst 2000")
    table["customers"]["bob"]["limits"]["api"] = "70/s burst 90"

    assert ("customers", "bob", "limits", "api") == mistake(table).path


def test_no_customer_has_its_own_of_what_is_counted_together() -> None:
    """Its quota would be that of the others, too."""
    plans = {"free": {"limits": {"all": {"limit": "5/s", "by": "organisation"}}}}
    error = mistake({"plans": plans, "customers": {"ada": {"plan": "free", "limits": {"all": "9/s"}}}})

    assert ("customers", "ada", "limits", "all") == error.path
    assert "which other customers share" in error.problem


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (Limit(9, 60), True),
        (Limit(9, 60, soft=0.5, max_debt=5, costs={"GET": 1}), True),
        (Limit(5, 61), False),
        (Limit(5, 60, algorithm="fixed-window"), False),
    ],
)
def test_limits_share_counts_if_they_differ_in_how_much_they_admit(other: Limit, same: bool) -> None:
    """And in nothing else."""
    assert same == same_cells(Limit(5, 60), other)


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [
        (Limit(5, 60, algorithm="fixed-window"), 60),
        (Limit(5, 60), 120),
        (Limit(5, 60, algorithm="sliding-slices"), 60),
        (Limit(5, 60, algorithm="token-bucket", burst=15), 180),
        (Limit(5, 60, algorithm="token-bucket", burst=1), 60),
    ],
)
def test_a_charge_counts_for_a_window_or_until_it_has_drained(limit: Limit, seconds: float) -> None:
    """Two windows if the last one fades into the next."""
    assert seconds == counts_for_s(limit)


def test_a_difference_is_told_by_plan_and_customer() -> None:
    """Additions, removals and changes are told; another way to write the same is no difference."""
    after = changed("plans.free.limits.api", "60/PT1S")
    after["customers"] = {"cy": "free", "bob": {**GOOD["customers"]["bob"], "limits": {"api": "70/1000ms"}}}
    told = [str(each) for each in differences(checked(GOOD), checked(after))]

    assert [
        "~ plans.free.limits.api: 50/1s -> 60/1s",
        "- customers.ada: {plan: pro}",
        "+ customers.cy: {plan: free}",
    ] == told


@given(
    said=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda each: (
            st.lists(each)
            | st.dictionaries(
                st.sampled_from(["plans", "limits", "api", "limit", "customers", "plan", "by"]) | st.text(), each
            )
        ),
    )
)
def test_anything_is_a_document_or_a_mistake(said: object) -> None:
    """And nothing else happens."""
    try:
        document = checked(said)
    except InvalidContracts:
        return

    assert document == checked(table_of(document))
