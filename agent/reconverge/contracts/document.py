"""Makes plans and customers from the plain dicts of a contracts document; checks rules that concern several fields."""

# Theory of operation.
#
# A document is data, and the same on every node, in a file and at the hub. It names *plans*, each of which has any
# number of *limits*. A *customer* is on one plan, with limits of its own where it was promised something else. All
# limits of a contract must admit a request, and a request charges all of them or none.
#
# A limit counts by the customer, unless its `by` names other facts of a request: `by: [customer, user]` gives each
# user of a customer a count of its own. A limit whose `by` leaves the customer out counts several customers together.
# Two plans could give such a count two quotas, so plans that have a limit of that name must say the same quota.
#
# When a contract changes, what was used stays counted, as long as the limit has the same algorithm and window
# (`same_cells`). A limit that gets another algorithm or window begins with empty counts. So the former limit stays in
# force beside the new one for as long as a charge to it may still count: the program that changes the document lists it
# as `former` in the customer's entry. No change forgives use.
#
# `checked` is the only way to read a document from outside, and `table_of` the only way to write one. `format.py`
# describes the fields and their types; this file gives them their meaning, and checks the rules about several fields.
# Moments are seconds since 1970, UTC.

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from reconverge.contracts.model import (
    CUSTOMER,
    CUSTOMERS_MAX,
    FOLLOWING_MAX,
    PLAIN_LIMIT_FIELDS,
    PLANS_MAX,
    REFUSED,
    Customer,
    Document,
    Former,
    InvalidContracts,
    Plan,
    PlanLimit,
    Switching,
    check_identity,
    overridden,
    says_how_much,
)
from reconverge.errors import InvalidLimit, asked, shown
from reconverge.limit.grammar import parse_quotas
from reconverge.limit.limit import Limit

if TYPE_CHECKING:
    from reconverge.contracts import format as written

NAMES_SHOWN_MAX: Final = 20
"""The most names that an error message lists; a document can have a thousand plans."""


def checked(said: object) -> Document:
    """Makes a document from `said`, a dict as readers of JSON, YAML and TOML return it. Raises InvalidContracts."""
    from reconverge.contracts import format as written  # noqa: PLC0415  # programs without contracts need no pydantic

    table = written.read(written.Document, said)
    plans = {name: _plan(each, "plans", name) for name, each in table.plans.items()}
    if REFUSED in plans:
        raise InvalidContracts(
            f"{REFUSED!r} is reserved for customers without a plan; give the plan another name", "plans", REFUSED
        )
    for name, plan in plans.items():
        if plan.then is not None:
            _check_plan(plan.then, plans, "plans", name, "then")
    _check_ends(plans)
    _check_shared_counts(plans)
    unknown = table.unknown or REFUSED
    if unknown != REFUSED and _check_plan(unknown, plans, "unknown").lasts is not None:
        raise InvalidContracts(
            f"the plan {unknown!r} ends after a time that begins with a customer's `since`, which unknown customers do "
            "not have; name a plan without `lasts`",
            "unknown",
        )
    customers: object = {} if table.customers is None else table.customers
    if not isinstance(customers, dict):
        raise InvalidContracts(f"must be a table of customers by name, not {shown(customers)}", "customers")
    if len(customers) > CUSTOMERS_MAX:
        raise InvalidContracts(
            f"has {len(customers)} customers, and at most {CUSTOMERS_MAX} are possible; remove some", "customers"
        )
    return Document(plans, {name: checked_customer(name, each, plans) for name, each in customers.items()}, unknown)


def checked_customer(identity: object, said: object, plans: Mapping[str, Plan]) -> Customer:
    """Makes the contract of a customer from `said`, a dict or the name of a plan alone. Raises InvalidContracts."""
    from reconverge.contracts import format as written  # noqa: PLC0415  # likewise

    name = check_identity(identity, "customers")
    path = ("customers", name)
    table = written.read(written.Customer, {"plan": said} if isinstance(said, str) else said, *path)
    plan = _check_plan(table.plan, plans, *path, "plan")
    if table.then is not None:
        _check_plan(table.then, plans, *path, "then")
    _check_goes_with("until", table.until, "then", table.then, *path)
    if plan.lasts is not None and table.since is None:
        raise InvalidContracts(
            f"is missing, but the plan {table.plan!r} lasts for a time that begins with `since`; write `since`",
            *path,
            "since",
        )
    if table.then is not None and plans[table.then].lasts is not None:
        raise InvalidContracts(
            f"the plan {table.then!r} ends after a time, so `then` must not name it; name a plan without `lasts`",
            *path,
            "then",
        )
    if table.model_fields_set == {"plan"}:
        return on_plan(table.plan)
    limits = {
        _known_limit(each, plan, *path, "limits"): _override(said_of_it, plan.limits[each], *path, "limits", each)
        for each, said_of_it in (table.limits or {}).items()
    }
    for following in _following(plan, table.then, plans):
        for each in limits.keys() & following.limits.keys():
            _override((table.limits or {})[each], following.limits[each], *path, "limits", each)
    return Customer(
        plan=table.plan,
        limits=limits,
        since=table.since,
        until=table.until,
        then=table.then,
        switch=_switching(table.switch),
        switches={
            _known_limit(each, plan, *path, "switches"): switching
            for each, switch in (table.switches or {}).items()
            if (switching := _switching(switch)) is not None
        },
        former=tuple(
            Former(each.name, _limit(each, *path, "former", str(number)), each.by or (CUSTOMER,), each.until)
            for number, each in enumerate(table.former or ())
        ),
        note=table.note or "",
    )


@lru_cache(PLANS_MAX)
def on_plan(plan: str) -> Customer:
    """Returns the contract that has a plan and nothing else; all customers of the plan share this object."""
    return Customer(plan)


def _plan(table: written.Plan, *path: str) -> Plan:
    _check_goes_with("lasts", table.lasts, "then", table.then, *path)
    limits = {
        name: PlanLimit(_limit(each, *path, "limits", name), each.by or (CUSTOMER,), _switching(each.switch))
        for name, each in table.limits.items()
    }
    return Plan(limits, table.lasts, table.then)


def _switching(table: written.SwitchTable | None) -> Switching | None:
    if table is None:
        return None
    return Switching(table.to, 100 if table.percent is None else table.percent, table.until)


def _check_goes_with(one: str, value: object, other: str, other_value: object, *path: str) -> None:
    if (value is None) != (other_value is None):
        missing, present = (one, other) if value is None else (other, one)
        raise InvalidContracts(f"is missing, and `{present}` has no effect without it; give both", *path, missing)


def _limit(table: written.LimitTable, *path: str) -> Limit:
    given = {name: value for name in PLAIN_LIMIT_FIELDS if (value := getattr(table, name)) is not None}
    try:
        limit = Limit.parse(table.limit, **given)
    except InvalidLimit as error:
        raise InvalidContracts(error.problem, *path, *_at_fault(table.limit, given)) from None
    if limit.soft and limit.capacity == limit.nominal:
        least = ceil(1000 / limit.nominal) / 1000
        raise InvalidContracts(
            f"adds less than one request to a quota of {limit.nominal}, so it has no effect; write at least {least}",
            *path,
            "soft",
        )
    return replace(limit, name=None)


def _at_fault(text: str, given: Mapping[str, Any]) -> Iterable[str]:
    """Returns the path to the first invalid field of a limit.

    Adds the fields `given` one after the other to the limit string `text`; the first that makes it invalid is at fault.
    """
    said: dict[str, Any] = {}
    if not _makes_sense(text, said):
        return ("limit",)
    for field, value in given.items():
        if _makes_sense(text, {**said, field: value}):
            said[field] = value
            continue
        kinds = value if field == "costs" else ()
        kind = next((each for each in kinds if not _makes_sense(text, {**said, field: {each: value[each]}})), None)
        return (field,) if kind is None else (field, kind)
    return ("limit",)


def _makes_sense(text: str, said: Mapping[str, Any]) -> bool:
    try:
        Limit.parse(text, **said)
    except InvalidLimit:
        return False
    return True


def _override(said: str | written.LimitTable, plan_limit: PlanLimit, *path: str) -> str | Limit:
    """Checks a customer's own limit, which replaces the plan's limit. Returns a `Limit` or a limit string.

    A limit string over the same window as the plan's limit is returned as it is; it changes only quota and burst.
    """
    if CUSTOMER not in plan_limit.by:
        raise InvalidContracts(
            f"the plan's limit counts by {', '.join(plan_limit.by)}, which other customers share, so one customer "
            "cannot change it; remove this limit from the customer",
            *path,
        )
    if not isinstance(said, str):
        return _limit(said, *path)
    try:
        quotas = parse_quotas(said)
        if len(quotas) != 1:
            raise InvalidContracts(
                f"{shown(said)} has {len(quotas)} quotas, but must have exactly one; write one quota", *path
            )
        if not says_how_much(quotas[0], plan_limit.limit):
            return replace(Limit.parse(said), name=None)
        overridden(plan_limit.limit, said)
    except InvalidLimit as error:
        raise InvalidContracts(error.problem, *path) from None
    return said


def _check_ends(plans: Mapping[str, Plan]) -> None:
    for name in plans:
        seen, at = {name}, plans[name].then
        while at is not None:
            path = ("plans", name, "then")
            if at in seen:
                raise InvalidContracts(
                    f"the chain of plans leads back to {at!r}; the last plan must have no `then`", *path
                )
            if len(seen) > FOLLOWING_MAX:
                raise InvalidContracts(f"is followed by more than {FOLLOWING_MAX} plans; make the chain shorter", *path)
            seen.add(at)
            at = plans[at].then


def _check_shared_counts(plans: Mapping[str, Plan]) -> None:
    """Raises InvalidContracts if two plans count a limit of the same name by different facts.

    Also raises it if two plans give different quotas to a limit that counts several customers together.
    """
    first: dict[str, tuple[str, PlanLimit]] = {}
    for plan_name, plan in plans.items():
        for name, each in plan.limits.items():
            other_name, other = first.setdefault(name, (plan_name, each))
            path = ("plans", plan_name, "limits", name)
            if other.by != each.by:
                raise InvalidContracts(
                    f"this limit counts by {', '.join(each.by)} here, and by {', '.join(other.by)} in the plan "
                    f"{other_name!r}; write the same facts in all plans",
                    *path,
                    "by",
                )
            if CUSTOMER not in each.by and other.limit != each.limit:
                raise InvalidContracts(
                    f"this limit is {each.limit} here, and {other.limit} in the plan {other_name!r}; "
                    "it counts customers together, so write the same limit in all plans",
                    *path,
                )


def _following(plan: Plan, then: str | None, plans: Mapping[str, Plan]) -> list[Plan]:
    """Returns the plans that a customer on `plan` may come to: the plan `then`, if given, and those after `plan`."""
    following = [] if then is None else [plans[then]]
    while plan.then is not None:
        plan = plans[plan.then]
        following.append(plan)
    return following


def _listed(names: Mapping[str, object]) -> str:
    more = len(names) - NAMES_SHOWN_MAX
    return ", ".join(list(names)[:NAMES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")


def _check_plan(name: str, plans: Mapping[str, Plan], *path: str) -> Plan:
    if not plans:
        problem = f"there is no plan {shown(name)}, as the contracts have none yet; publish contracts with plans first"
        raise InvalidContracts(problem, *path)
    if name not in plans:
        raise InvalidContracts(f"there is no plan {shown(name)}; known: {_listed(plans)}{asked(name, plans)}", *path)
    return plans[name]


def _known_limit(name: str, plan: Plan, *path: str) -> str:
    if name not in plan.limits:
        known = _listed(plan.limits)
        raise InvalidContracts(
            f"the plan has no limit of that name; it has {known}{asked(name, plan.limits)}", *path, name
        )
    return name
