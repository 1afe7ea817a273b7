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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from math import ceil
from typing import Any, Final, Literal, TypeAlias

from reconverge.clock import SECOND_NS
from reconverge.errors import InvalidLimit, ReconvergeError, asked, shown
from reconverge.limit.checks import check_name
from reconverge.limit.durations import seconds_of_iso
from reconverge.limit.grammar import parse_quotas
from reconverge.limit.limit import DRAINED, SLIDING_WINDOW, Limit

PLANS_MAX: Final = 1000
CUSTOMERS_MAX: Final = 1_000_000
LIMITS_MAX: Final = 100
"""Of one plan. Each is decided about in every request of a customer."""
FORMER_MAX: Final = 100
"""Of one customer. A plan that is changed once a minute has no more that still count."""
FACTS_MAX: Final = 8
"""A limit counts by so many facts of a request at most."""
IDENTITY_BYTES_MAX: Final = 512
NOTE_LENGTH_MAX: Final = 1000
CUSTOMER: Final = "customer"
"""The fact by which a limit counts unless it says otherwise, and by which contracts are looked up."""
REFUSED: Final = "refused"
"""In place of a plan for unknown customers: their requests are refused."""

Word: TypeAlias = Literal["on", "shadow", "off"]
WORDS: Final[dict[str, Word]] = {"on": "on", "shadow": "shadow", "off": "off"}


class InvalidContracts(ReconvergeError, ValueError):
    """Raised when a contracts document makes no sense. `path` leads to the field, as in `("plans", "free", "then")`."""

    def __init__(self, problem: str, *path: str) -> None:
        self.problem = problem
        self.path = path
        super().__init__(f"{'.'.join(path)}: {problem}" if path else problem)


@dataclass(frozen=True, slots=True)
class Switching:
    """To what something is switched, for how many of its keys, and for how long."""

    to: Word
    percent: float = 100
    """Of the keys, by their hash: the same keys on all nodes. The other keys are on."""
    until: float | None = None
    """When it is on again; None: until that is said."""


@dataclass(frozen=True, slots=True)
class PlanLimit:
    """What a plan admits of one thing."""

    limit: Limit
    by: tuple[str, ...] = (CUSTOMER,)
    """The facts of a request by which it is counted."""
    switch: Switching | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Limits that many customers have."""

    limits: Mapping[str, PlanLimit]
    lasts: float | None = None
    """For how many seconds from a customer's `since` it holds; None: until the customer changes."""
    then: str | None = None
    """The plan after that."""


@dataclass(frozen=True, slots=True)
class Former:
    """A limit of a contract that has changed, which holds until all of its use has stopped counting."""

    name: str
    limit: Limit
    by: tuple[str, ...]
    until: float


@dataclass(frozen=True, slots=True)
class Customer:
    """The contract of one customer."""

    plan: str
    limits: Mapping[str, str | Limit] = field(default_factory=dict[str, "str | Limit"])
    """What it has in place of the plan's, by name; text says quota and burst, and all else is as in the plan."""
    since: float | None = None
    """When the plan began; plans that last need it."""
    until: float | None = None
    """When the contract ends, and the plan `then` begins."""
    then: str | None = None
    switch: Switching | None = None
    """Of the whole contract."""
    switches: Mapping[str, Switching] = field(default_factory=dict[str, Switching])
    """Of single limits."""
    former: tuple[Former, ...] = ()
    note: str = ""
    """For people."""


@dataclass(frozen=True, slots=True)
class Document:
    """All contracts of a fleet."""

    plans: Mapping[str, Plan]
    customers: Mapping[str, Customer] = field(default_factory=dict[str, Customer])
    """By identity."""
    unknown: str = REFUSED
    """The plan of customers that are not named, or `REFUSED`."""


PLAIN_LIMIT_FIELDS: Final = tuple(
    each.name for each in fields(Limit) if each.name not in ("quota", "window", "burst", "name", "warmup")
)
"""What can be said of a limit beside the limit string: each a field of `Limit` by its own name."""
COUNTED_BY: Final = tuple(
    each.name for each in fields(Limit) if each.name not in ("quota", "burst", "name", "soft", "max_debt", "costs")
)
"""The fields of `Limit` that say how it is counted; the others say how much it admits."""
PLAN_LIMIT_FIELDS: Final = ("limit", "by", "switch", *PLAIN_LIMIT_FIELDS)
PLAN_FIELDS: Final = ("limits", "lasts", "then")
CUSTOMER_FIELDS: Final = ("plan", "limits", "since", "until", "then", "switch", "switches", "former", "note")
FORMER_FIELDS: Final = ("name", "until", "by", "limit", *PLAIN_LIMIT_FIELDS)
SWITCH_FIELDS: Final = ("to", "percent", "until")
DOCUMENT_FIELDS: Final = ("plans", "customers", "unknown")


def checked(said: object) -> Document:
    """The document that a table describes, as JSON, YAML and TOML readers make one. Raises InvalidContracts."""
    table = _table(said, DOCUMENT_FIELDS)
    if "plans" not in table:
        raise InvalidContracts("is missing; name at least one plan", "plans")
    plans = {
        _name(name, "plans"): _plan(name, each) for name, each in _some(table["plans"], PLANS_MAX, "plans").items()
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
    said_customers = _some(table.get("customers") or {}, CUSTOMERS_MAX, "customers", least=0)
    customers = {identity: checked_customer(identity, each, plans) for identity, each in said_customers.items()}
    return Document(plans, customers, unknown)


def checked_customer(identity: object, said: object, plans: Mapping[str, Plan]) -> Customer:
    """The contract of one customer that a table, or the name of a plan alone, describes. Raises InvalidContracts."""
    check_identity(identity, "customers")
    path = ("customers", str(identity))
    if isinstance(said, str):
        said = {"plan": said}
    table = _table(said, CUSTOMER_FIELDS, *path)
    if "plan" not in table:
        raise InvalidContracts("is missing", *path, "plan")
    plan = _check_plan(table["plan"], plans, *path, "plan")
    since, until = (_moment(table.get(name), *path, name) for name in ("since", "until"))
    then = table.get("then")
    if then is not None:
        _check_plan(then, plans, *path, "then")
    if (until is None) != (then is None):
        raise InvalidContracts("goes with `then`, the plan that follows; say both", *path, "then" if then else "until")
    if plan.lasts is not None and since is None:
        raise InvalidContracts(f"is missing: the plan {table['plan']!r} lasts from then on", *path, "since")
    if then is not None and plans[then].lasts is not None:
        raise InvalidContracts(f"the plan {then!r} lasts for a time itself, and cannot follow", *path, "then")
    limits = {
        _known_limit(name, plan, *path, "limits"): _override(each, plan.limits[name], *path, "limits", name)
        for name, each in _some(table.get("limits") or {}, LIMITS_MAX, *path, "limits", least=0).items()
    }
    switches = {
        _known_limit(name, plan, *path, "switches"): _must_switch(each, *path, "switches", name)
        for name, each in _some(table.get("switches") or {}, LIMITS_MAX, *path, "switches", least=0).items()
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
        switch=_switch(table.get("switch"), *path, "switch"),
        switches=switches,
        former=_formers(table.get("former"), *path, "former"),
        note=note,
    )


def check_identity(identity: object, *path: str) -> str:
    """Return `identity` if it can name a customer. Raises InvalidContracts."""
    if not isinstance(identity, str) or not identity or "\x00" in identity:
        raise InvalidContracts(f"{shown(identity)} names no customer: a customer is text without NUL", *path)
    if len(identity.encode("utf-8", "surrogatepass")) > IDENTITY_BYTES_MAX:
        raise InvalidContracts(f"{shown(identity)} is longer than {IDENTITY_BYTES_MAX} bytes", *path)
    return identity


def table_of(document: Document) -> dict[str, Any]:
    """What a document says, without what it does not say; `checked` reads it back."""
    return {
        "unknown": document.unknown,
        "plans": {name: _said_of_plan(plan) for name, plan in document.plans.items()},
        "customers": {identity: table_of_customer(each) for identity, each in document.customers.items()},
    }


def table_of_customer(customer: Customer) -> dict[str, Any]:
    """What a document says of one customer."""
    said: dict[str, Any] = {"plan": customer.plan}
    if customer.limits:
        said["limits"] = {
            name: each if isinstance(each, str) else _said_in_full(each) for name, each in customer.limits.items()
        }
    for name in ("since", "until"):
        if getattr(customer, name) is not None:
            said[name] = written_moment(getattr(customer, name))
    if customer.then is not None:
        said["then"] = customer.then
    if customer.switch is not None:
        said["switch"] = _said_of_switch(customer.switch)
    if customer.switches:
        said["switches"] = {name: _said_of_switch(each) for name, each in customer.switches.items()}
    if customer.former:
        said["former"] = [_said_of_former(each) for each in customer.former]
    if customer.note:
        said["note"] = customer.note
    return said


def _said_in_full(limit: Limit) -> dict[str, Any]:
    """A customer's own limit, as a table: text alone would mean the plan's algorithm."""
    said = said_of_limit(limit)
    return {"limit": said} if isinstance(said, str) else said


def same_cells(one: Limit, other: Limit) -> bool:
    """Whether two limits of one name share their counts: they differ in how much they admit, and in nothing else."""
    return all(getattr(one, name) == getattr(other, name) for name in COUNTED_BY)


def counts_for_s(limit: Limit) -> float:
    """For how many seconds a charge to such a limit may still count."""
    window_s = limit.window_ns / SECOND_NS
    if limit.counts_as in DRAINED:
        return window_s * max(1.0, limit.capacity / limit.quota)
    return 2 * window_s if limit.algorithm == SLIDING_WINDOW else window_s


def overridden(limit: Limit, override: str | Limit) -> Limit:
    """The limit with a customer's quota and burst in place of its own."""
    if isinstance(override, Limit):
        return override
    quota = parse_quotas(override)[0]
    return replace(limit, quota=quota.amount, burst=quota.burst)


def said_of_limit(limit: Limit) -> str | dict[str, Any]:
    """A limit as a document says it: the limit string alone where that says all."""
    text = _limit_string(limit)
    said = {
        name: _plain(getattr(limit, name))
        for name in PLAIN_LIMIT_FIELDS
        if getattr(limit, name) != getattr(Limit.parse(text), name, None)
    }
    return {"limit": text, **said} if said else text


def written_moment(moment: float) -> str:
    """A moment in ISO 8601, UTC."""
    return datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z")


# ---------------------------------------------------------------- reading the parts


def _plan(name: str, said: object) -> Plan:
    path = ("plans", name)
    table = _table(said, PLAN_FIELDS, *path)
    if "limits" not in table:
        raise InvalidContracts("is missing; a plan without limits would admit everything", *path, "limits")
    limits = {
        _name(each, *path, "limits"): _plan_limit(value, *path, "limits", each)
        for each, value in _some(table["limits"], LIMITS_MAX, *path, "limits").items()
    }
    lasts = _duration(table.get("lasts"), *path, "lasts")
    then = table.get("then")
    if (lasts is None) != (then is None):
        missing, present = ("lasts", "then") if lasts is None else ("then", "lasts")
        raise InvalidContracts(f"is missing: `{present}` goes with it", *path, missing)
    return Plan(limits, lasts, then)


def _plan_limit(said: object, *path: str) -> PlanLimit:
    if isinstance(said, str | int | float):
        said = {"limit": said}
    table = _table(said, PLAN_LIMIT_FIELDS, *path)
    return PlanLimit(
        _limit(table, *path), _facts(table.get("by"), *path, "by"), _switch(table.get("switch"), *path, "switch")
    )


def _limit(table: Mapping[str, Any], *path: str) -> Limit:
    if "limit" not in table:
        raise InvalidContracts("is missing", *path, "limit")
    given = {name: table[name] for name in PLAIN_LIMIT_FIELDS if table.get(name) is not None}
    try:
        limit = Limit.parse(table["limit"], **given)
    except InvalidLimit as error:
        raise InvalidContracts(error.problem, *path, "limit") from None
    except TypeError as error:
        raise InvalidContracts(str(error), *path) from None
    if limit.soft and limit.capacity == limit.nominal:
        least = ceil(1000 / limit.nominal) / 1000
        raise InvalidContracts(f"adds less than one request to {limit.nominal}; say at least {least}", *path, "soft")
    return replace(limit, name=None)


def _override(said: object, plan_limit: PlanLimit, *path: str) -> str | Limit:
    """What a customer has in place of a plan's limit. Text over the same window changes quota and burst alone."""
    if CUSTOMER not in plan_limit.by:
        raise InvalidContracts(
            f"counts by {', '.join(plan_limit.by)}, which other customers share, so one customer cannot have its own",
            *path,
        )
    if not isinstance(said, str):
        return _limit(_table(said, ("limit", *PLAIN_LIMIT_FIELDS), *path), *path)
    try:
        quotas = parse_quotas(said)
        if len(quotas) != 1:
            raise InvalidContracts(f"{said!r} has {len(quotas)} quotas where one is wanted", *path)
        if round(quotas[0].window_s * 1_000_000) * 1000 != plan_limit.limit.window_ns:
            return replace(Limit.parse(said), name=None)
        overridden(plan_limit.limit, said)
    except InvalidLimit as error:
        raise InvalidContracts(error.problem, *path) from None
    return said


def _formers(said: object, *path: str) -> tuple[Former, ...]:
    if said is None:
        return ()
    if not isinstance(said, list) or len(said) > FORMER_MAX:
        raise InvalidContracts(f"must be a list of at most {FORMER_MAX} limits", *path)
    formers = []
    for number, each in enumerate(said):
        table = _table(each, FORMER_FIELDS, *path, str(number))
        until = _moment(table.get("until"), *path, str(number), "until")
        if until is None:
            raise InvalidContracts("is missing", *path, str(number), "until")
        name = _name(table.get("name"), *path, str(number), "name")
        by = _facts(table.get("by"), *path, str(number), "by")
        formers.append(Former(name, _limit(table, *path, str(number)), by, until))
    return tuple(formers)


def _switch(said: object, *path: str) -> Switching | None:
    return None if said is None else _must_switch(said, *path)


def _must_switch(said: object, *path: str) -> Switching:
    if isinstance(said, bool):  # YAML reads on and off as true and false
        said = "on" if said else "off"
    if isinstance(said, str):
        said = {"to": said}
    table = _table(said, SWITCH_FIELDS, *path)
    to = table.get("to")
    if isinstance(to, bool):
        to = "on" if to else "off"
    if not isinstance(to, str) or to not in WORDS:
        raise InvalidContracts(f"must be {', '.join(map(repr, WORDS))}, not {shown(to)}", *path, "to")
    percent = table.get("percent", 100)
    if isinstance(percent, bool) or not isinstance(percent, int | float) or not 0 <= percent <= 100:
        raise InvalidContracts(f"must be a number from 0 to 100, not {shown(percent)}", *path, "percent")
    return Switching(WORDS[to], percent, _moment(table.get("until"), *path, "until"))


def _facts(said: object, *path: str) -> tuple[str, ...]:
    if said is None:
        return (CUSTOMER,)
    facts = [said] if isinstance(said, str) else said
    if not isinstance(facts, Sequence) or not 1 <= len(facts) <= FACTS_MAX:
        raise InvalidContracts(f"must name 1 to {FACTS_MAX} facts of a request, such as [customer, user]", *path)
    for each in facts:
        if not isinstance(each, str) or not each.isidentifier():
            raise InvalidContracts(f"{shown(each)} is no name of a fact, such as user, organisation or address", *path)
    if len(set(facts)) < len(facts):
        raise InvalidContracts("names a fact twice", *path)
    return tuple(facts)


def _duration(said: object, *path: str) -> float | None:
    if said is None:
        return None
    if isinstance(said, int | float) and not isinstance(said, bool) and said > 0:
        return said
    if not isinstance(said, str):
        raise InvalidContracts(f"must be seconds, or a duration such as P14D, not {shown(said)}", *path)
    try:
        seconds = seconds_of_iso(said)
    except ValueError as error:
        raise InvalidContracts(f"{shown(said)} {error}", *path) from None
    if seconds <= 0:
        raise InvalidContracts(f"{shown(said)} is no time at all", *path)
    return seconds


def _moment(said: object, *path: str) -> float | None:
    if said is None:
        return None
    if isinstance(said, datetime):  # TOML and YAML read them by themselves
        moment = said
    elif isinstance(said, str):
        try:
            moment = datetime.fromisoformat(said)
        except ValueError:
            raise InvalidContracts(f"{shown(said)} is no moment like 2026-11-23T12:00:00Z", *path) from None
    else:
        raise InvalidContracts(f"must be a moment like 2026-11-23T12:00:00Z, not {shown(said)}", *path)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


# ---------------------------------------------------------------- checks of the whole


def _check_ends(plans: Mapping[str, Plan]) -> None:
    """Raise InvalidContracts if plans follow each other in a circle."""
    for name in plans:
        seen, at = {name}, plans[name].then
        while at is not None:
            if at in seen:
                raise InvalidContracts(
                    f"leads back to the plan {at!r}; the last plan must be one that does not end", "plans", name, "then"
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


def _check_plan(name: object, plans: Mapping[str, Plan], *path: str) -> Plan:
    if not isinstance(name, str) or name not in plans:
        raise InvalidContracts(f"there is no plan {shown(name)}; known: {', '.join(plans)}{asked(name, plans)}", *path)
    return plans[name]


def _known_limit(name: str, plan: Plan, *path: str) -> str:
    if name not in plan.limits:
        known = ", ".join(plan.limits)
        raise InvalidContracts(
            f"the plan has no limit of that name; it has {known}{asked(name, plan.limits)}", *path, name
        )
    return name


def _name(name: object, *path: str) -> str:
    try:
        return check_name(name)
    except InvalidLimit as error:
        raise InvalidContracts(error.problem, *path, *([name] if isinstance(name, str) else [])) from None


def _some(said: object, most: int, *path: str, least: int = 1) -> dict[str, Any]:
    table = _table(said, None, *path)
    if not least <= len(table) <= most:
        raise InvalidContracts(f"has {len(table)} entries; {least} to {most} are possible", *path)
    return table


def _table(said: object, known: Sequence[str] | None, *path: str) -> dict[str, Any]:
    if not isinstance(said, dict):
        raise InvalidContracts(f"must be a table, not {shown(said)}", *path)
    for name in said:
        if not isinstance(name, str):
            raise InvalidContracts(f"has the key {shown(name)}, which is no text; put it into quotes", *path)
        if known is not None and name not in known:
            raise InvalidContracts(
                f"there is no such field; known: {', '.join(known)}{asked(name, known)}", *path, name
            )
    return said


# ---------------------------------------------------------------- writing the parts


def _said_of_plan(plan: Plan) -> dict[str, Any]:
    said: dict[str, Any] = {"limits": {name: _said_of_plan_limit(each) for name, each in plan.limits.items()}}
    if plan.lasts is not None:
        said |= {"lasts": plan.lasts, "then": plan.then}
    return said


def _said_of_plan_limit(each: PlanLimit) -> str | dict[str, Any]:
    said = said_of_limit(each.limit)
    more: dict[str, Any] = {}
    if each.by != (CUSTOMER,):
        more["by"] = list(each.by)
    if each.switch is not None:
        more["switch"] = _said_of_switch(each.switch)
    if not more:
        return said
    return {**({"limit": said} if isinstance(said, str) else said), **more}


def _said_of_former(former: Former) -> dict[str, Any]:
    said = said_of_limit(former.limit)
    table: dict[str, Any] = {"limit": said} if isinstance(said, str) else said
    by = {} if former.by == (CUSTOMER,) else {"by": list(former.by)}
    return {"name": former.name, "until": written_moment(former.until), **by, **table}


def _said_of_switch(switch: Switching) -> str | dict[str, Any]:
    said: dict[str, Any] = {"to": switch.to}
    if switch.percent != 100:  # all of them
        said["percent"] = switch.percent
    if switch.until is not None:
        said["until"] = written_moment(switch.until)
    return said if len(said) > 1 else switch.to


def _limit_string(limit: Limit) -> str:
    window_s = limit.window_ns / SECOND_NS
    window = f"{window_s:.0f}s" if window_s.is_integer() else f"{limit.window_ns // 1_000_000}ms"
    burst = "" if limit.burst is None else f" burst {limit.burst}"
    warmup = "" if limit.warmup is None else f" warmup {round(limit.warmup * 1000)}ms"
    return f"{limit.quota}/{window}{burst}{warmup}"


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else value
