"""What a contracts document says: plans, customers, and what holds for a customer that it does not name."""

# Theory of operation.
#
# A document is data, and the same on every node, in a file and at the hub. It names *plans*, each of which has any
# number of *limits*: how much of what in what time. A *customer* is on one plan, with limits of its own where it was
# promised something else. All limits of a contract must hold, and a request charges all of them or none.
#
# A limit counts by the customer, unless its `by` names other facts of a request: `by: [customer, user]` gives each
# user of a customer a count of its own. A limit whose `by` leaves the customer out counts several customers together.
# Two plans could give such a count two quotas, so plans that have a limit of that name must say the same quota.
#
# When a contract changes, what was used stays in the counts, as long as the limit is counted as before: by the same
# algorithm over the same window (`same_cells`). A limit that is counted otherwise has other counts, which are empty. So
# the former limit goes on holding beside the new one for as long as its use may still count: `former` in a customer's
# entry, which whatever changes the document writes. No change forgives use.
#
# `checked` is the only way in for what comes from outside, and `table_of` the only way out: both twins of one format,
# whose fields are listed here once. Moments are seconds since 1970, UTC, and are written in ISO 8601.

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reconverge.contracts.model import (
    COUNTED_BY,
    CUSTOMER,
    CUSTOMER_FIELDS,
    CUSTOMERS_MAX,
    DOCUMENT_FIELDS,
    FACTS_MAX,
    FOLLOWING_MAX,
    FORMER_FIELDS,
    FORMER_MAX,
    IDENTITY_BYTES_MAX,
    LASTS_MAX_S,
    LIMITS_MAX,
    NOTE_LENGTH_MAX,
    PLAIN_LIMIT_FIELDS,
    PLAN_FIELDS,
    PLAN_LIMIT_FIELDS,
    PLANS_MAX,
    REFUSED,
    SWITCH_FIELDS,
    WORDS,
    Customer,
    Document,
    Former,
    InvalidContracts,
    Plan,
    PlanLimit,
    Switching,
    Word,
    counts_for_s,
    overridden,
    same_cells,
)
from reconverge.contracts.reading import (
    check_identity,
    entries_of,
    read_formers,
    read_moment,
    read_name,
    read_override,
    read_plan,
    read_switch,
    table_at,
)
from reconverge.contracts.writing import said_of_limit, table_of, table_of_customer, written_moment
from reconverge.errors import asked, shown

__all__ = [
    "COUNTED_BY",
    "CUSTOMER",
    "CUSTOMERS_MAX",
    "CUSTOMER_FIELDS",
    "DOCUMENT_FIELDS",
    "FACTS_MAX",
    "FOLLOWING_MAX",
    "FORMER_FIELDS",
    "FORMER_MAX",
    "IDENTITY_BYTES_MAX",
    "LASTS_MAX_S",
    "LIMITS_MAX",
    "NOTE_LENGTH_MAX",
    "PLAIN_LIMIT_FIELDS",
    "PLANS_MAX",
    "PLAN_FIELDS",
    "PLAN_LIMIT_FIELDS",
    "REFUSED",
    "SWITCH_FIELDS",
    "WORDS",
    "Customer",
    "Document",
    "Former",
    "InvalidContracts",
    "Plan",
    "PlanLimit",
    "Switching",
    "Word",
    "check_identity",
    "checked",
    "checked_customer",
    "counts_for_s",
    "overridden",
    "said_of_limit",
    "same_cells",
    "table_of",
    "table_of_customer",
    "written_moment",
]

NAMES_SHOWN_MAX: Final = 20
"""In a message; a document can have a thousand plans."""


def checked(said: object) -> Document:
    """The document that a table describes, as JSON, YAML and TOML readers make one. Raises InvalidContracts."""
    table = table_at(said, DOCUMENT_FIELDS)
    if "plans" not in table:
        raise InvalidContracts("is missing; name at least one plan", "plans")
    plans = {
        _plan_name(name): read_plan(name, each) for name, each in entries_of(table["plans"], PLANS_MAX, "plans").items()
    }
    for name, plan in plans.items():
        if plan.then is not None:
            _check_plan(plan.then, plans, "plans", name, "then")
    _check_ends(plans)
    _check_shared_counts(plans)
    unknown = table.get("unknown", REFUSED)
    if unknown != REFUSED:
        _check_plan(unknown, plans, "unknown")
        if plans[unknown].lasts is not None:
            raise InvalidContracts(
                f"the plan {unknown!r} lasts, and nothing says since when for the unknown", "unknown"
            )
    said_customers = entries_of(table.get("customers", {}), CUSTOMERS_MAX, "customers", least=0)
    customers = {identity: checked_customer(identity, each, plans) for identity, each in said_customers.items()}
    return Document(plans, customers, unknown)


def checked_customer(identity: object, said: object, plans: Mapping[str, Plan]) -> Customer:
    """The contract of one customer that a table, or the name of a plan alone, describes. Raises InvalidContracts."""
    check_identity(identity, "customers")
    path = ("customers", str(identity))
    if isinstance(said, str):
        said = {"plan": said}
    table = table_at(said, CUSTOMER_FIELDS, *path)
    if "plan" not in table:
        raise InvalidContracts("is missing", *path, "plan")
    plan = _check_plan(table["plan"], plans, *path, "plan")
    since, until = (read_moment(table.get(name), *path, name) for name in ("since", "until"))
    then = table.get("then")
    if then is not None:
        _check_plan(then, plans, *path, "then")
    if (until is None) != (then is None):
        missing, present = ("until", "then") if until is None else ("then", "until")
        raise InvalidContracts(f"is missing: `{present}` goes with it", *path, missing)
    if plan.lasts is not None and since is None:
        raise InvalidContracts(f"is missing: the plan {table['plan']!r} lasts from then on", *path, "since")
    if then is not None and plans[then].lasts is not None:
        raise InvalidContracts(f"the plan {then!r} lasts for a time itself, and cannot follow", *path, "then")
    limits = {
        _known_limit(name, plan, *path, "limits"): read_override(each, plan.limits[name], *path, "limits", name)
        for name, each in entries_of(table.get("limits", {}), LIMITS_MAX, *path, "limits", least=0).items()
    }
    for following in _following(plan, then, plans):
        for name in limits.keys() & following.limits.keys():
            read_override(table["limits"][name], following.limits[name], *path, "limits", name)
    switches = {
        _known_limit(name, plan, *path, "switches"): read_switch(each, *path, "switches", name)
        for name, each in entries_of(table.get("switches", {}), LIMITS_MAX, *path, "switches", least=0).items()
    }
    note = table.get("note", "")
    if not isinstance(note, str) or len(note) > NOTE_LENGTH_MAX:
        raise InvalidContracts(f"must be text of at most {NOTE_LENGTH_MAX} characters", *path, "note")
    return Customer(
        plan=table["plan"],
        limits=limits,
        since=since,
        until=until,
        then=then,
        switch=read_switch(table["switch"], *path, "switch") if "switch" in table else None,
        switches=switches,
        former=read_formers(table.get("former"), *path, "former"),
        note=note,
    )


def _check_ends(plans: Mapping[str, Plan]) -> None:
    """Raise InvalidContracts if plans follow each other in a circle, or too many do."""
    for name in plans:
        seen, at = {name}, plans[name].then
        while at is not None:
            path = ("plans", name, "then")
            if at in seen:
                raise InvalidContracts(
                    f"leads back to the plan {at!r}; the last plan must be one that does not end", *path
                )
            if len(seen) > FOLLOWING_MAX:
                raise InvalidContracts(
                    f"is followed by more than {FOLLOWING_MAX} plans; end with one that does not end sooner", *path
                )
            seen.add(at)
            at = plans[at].then


def _check_shared_counts(plans: Mapping[str, Plan]) -> None:
    """Raise InvalidContracts if two plans give one count two quotas, or one name two meanings."""
    first: dict[str, tuple[str, PlanLimit]] = {}
    for plan_name, plan in plans.items():
        for name, each in plan.limits.items():
            other_name, other = first.setdefault(name, (plan_name, each))
            path = ("plans", plan_name, "limits", name)
            if other.by != each.by:
                raise InvalidContracts(
                    f"counts by {', '.join(each.by)}, and by {', '.join(other.by)} in {other_name!r}", *path, "by"
                )
            if CUSTOMER not in each.by and other.limit != each.limit:
                raise InvalidContracts(
                    f"is {each.limit}, and {other.limit} in {other_name!r}; "
                    "as it counts customers together, all plans must say the same",
                    *path,
                )


def _following(plan: Plan, then: str | None, plans: Mapping[str, Plan]) -> list[Plan]:
    """The plans that a customer of a plan comes to be on without a change, by which its own limits must make sense."""
    following = [] if then is None else [plans[then]]
    while plan.then is not None:
        plan = plans[plan.then]
        following.append(plan)
    return following


def _plan_name(name: object) -> str:
    if name == REFUSED:
        raise InvalidContracts(f"{REFUSED!r} stands for no plan at all; give the plan another name", "plans", REFUSED)
    return read_name(name, "plans")


def _listed(names: Mapping[str, object]) -> str:
    more = len(names) - NAMES_SHOWN_MAX
    return ", ".join(list(names)[:NAMES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")


def _check_plan(name: object, plans: Mapping[str, Plan], *path: str) -> Plan:
    if not isinstance(name, str) or name not in plans:
        raise InvalidContracts(f"there is no plan {shown(name)}; known: {_listed(plans)}{asked(name, plans)}", *path)
    return plans[name]


def _known_limit(name: str, plan: Plan, *path: str) -> str:
    if name not in plan.limits:
        known = _listed(plan.limits)
        raise InvalidContracts(
            f"the plan has no limit of that name; it has {known}{asked(name, plan.limits)}", *path, name
        )
    return name
