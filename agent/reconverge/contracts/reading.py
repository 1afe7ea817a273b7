"""Reads the parts of a contracts document: limits, switches, moments, facts, names; each mistake names its field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from math import ceil
from typing import Any, Final

from reconverge.contracts.model import (
    CUSTOMER,
    FACTS_MAX,
    FORMER_FIELDS,
    FORMER_MAX,
    IDENTITY_BYTES_MAX,
    LASTS_MAX_S,
    LIMITS_MAX,
    PLAIN_LIMIT_FIELDS,
    PLAN_FIELDS,
    PLAN_LIMIT_FIELDS,
    SWITCH_FIELDS,
    WORDS,
    Former,
    InvalidContracts,
    Plan,
    PlanLimit,
    Switching,
    overridden,
    says_how_much,
)
from reconverge.errors import InvalidLimit, InvalidSetting, asked, shown
from reconverge.limit.calendar import FIRST_S, LAST_S
from reconverge.limit.checks import KINDS_MAX, check_name
from reconverge.limit.durations import seconds_of_iso
from reconverge.limit.grammar import parse_quotas
from reconverge.limit.limit import Limit
from reconverge.limit.quotas import fraction_of

NO_FIELDS: Final = dict.fromkeys(
    ("block_after", "block_for"),
    "contracts ban no customer; ban by a limit of the program's own: agent.limit(..., block_after=..., block_for=...)",
)
"""What is said of other limits, and has no place in contracts; and what to do instead."""
OVERRIDE_FIELDS: Final = ("limit", *PLAIN_LIMIT_FIELDS)


def read_plan(name: str, said: object) -> Plan:
    """A plan. Raises InvalidContracts."""
    path = ("plans", name)
    table = table_at(said, PLAN_FIELDS, *path)
    if "limits" not in table:
        raise InvalidContracts("is missing; a plan without limits would admit everything", *path, "limits")
    limits = {
        read_name(each, *path, "limits"): _plan_limit(value, *path, "limits", each)
        for each, value in entries_of(table["limits"], LIMITS_MAX, *path, "limits").items()
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
    table = table_at(said, PLAN_LIMIT_FIELDS, *path)
    switch = read_switch(table["switch"], *path, "switch") if "switch" in table else None
    return PlanLimit(_limit(table, *path), _facts(table.get("by"), *path, "by"), switch)


def _limit(table: Mapping[str, Any], *path: str) -> Limit:
    if "limit" not in table:
        raise InvalidContracts("is missing", *path, "limit")
    given = {name: table[name] for name in PLAIN_LIMIT_FIELDS if name in table}
    if isinstance(given.get("soft"), str):
        try:
            given["soft"] = fraction_of(given["soft"])
        except InvalidSetting as error:
            raise InvalidContracts(f"{shown(table['soft'])} {error.problem}", *path, "soft") from None
    try:
        limit = Limit.parse(table["limit"], **given)
    except InvalidLimit as error:
        raise InvalidContracts(error.problem, *path, *_at_fault(table["limit"], given)) from None
    except TypeError:  # a value that cannot be compared or looked up, such as a list for an algorithm
        field, *_ = _at_fault(table["limit"], given)
        raise InvalidContracts(f"{shown(table[field])} cannot be used here", *path, field) from None
    if limit.soft and limit.capacity == limit.nominal:
        least = ceil(1000 / limit.nominal) / 1000
        raise InvalidContracts(f"adds less than one request to {limit.nominal}; say at least {least}", *path, "soft")
    return replace(limit, name=None)


def _at_fault(text: object, given: Mapping[str, Any]) -> tuple[str, ...]:
    """The path to what a limit stops making sense with, when one field is said after the other."""
    said: dict[str, Any] = {}
    for field in ("limit", *given):
        before = dict(said)
        if field != "limit":
            said[field] = given[field]
        if _makes_sense(text, said):
            continue
        if field == "costs" and isinstance(given[field], dict) and len(given[field]) <= KINDS_MAX:
            for kind, cost in given[field].items():
                if not _makes_sense(text, {**before, "costs": {kind: cost}}):
                    return field, str(kind)
        return (field,)
    return ("limit",)


def _makes_sense(text: object, said: Mapping[str, Any]) -> bool:
    try:
        Limit.parse(text, **said)  # type: ignore[arg-type]  # text of another type is a mistake, too
    except (InvalidLimit, TypeError):
        return False
    return True


def read_override(said: object, plan_limit: PlanLimit, *path: str) -> str | Limit:
    """What a customer has in place of a plan's limit. Text over the same window changes quota and burst alone."""
    if CUSTOMER not in plan_limit.by:
        raise InvalidContracts(
            f"counts by {', '.join(plan_limit.by)}, which other customers share, so one customer cannot have its own",
            *path,
        )
    if not isinstance(said, str):
        return _limit(table_at(said, OVERRIDE_FIELDS, *path), *path)
    try:
        quotas = parse_quotas(said)
        if len(quotas) != 1:
            raise InvalidContracts(f"{shown(said)} has {len(quotas)} quotas where one is wanted", *path)
        if not says_how_much(quotas[0], plan_limit.limit):
            return replace(Limit.parse(said), name=None)
        overridden(plan_limit.limit, said)
    except InvalidLimit as error:
        raise InvalidContracts(error.problem, *path) from None
    return said


def read_formers(said: object, *path: str) -> tuple[Former, ...]:
    """The former limits of a customer, none if none are said. Raises InvalidContracts."""
    if said is None:
        return ()
    if not isinstance(said, list) or len(said) > FORMER_MAX:
        raise InvalidContracts(f"must be a list of at most {FORMER_MAX} limits", *path)
    formers = []
    for number, each in enumerate(said):
        table = table_at(each, FORMER_FIELDS, *path, str(number))
        until = read_moment(table.get("until"), *path, str(number), "until")
        if until is None:
            raise InvalidContracts("is missing", *path, str(number), "until")
        name = read_name(table.get("name"), *path, str(number), "name")
        by = _facts(table.get("by"), *path, str(number), "by")
        formers.append(Former(name, _limit(table, *path, str(number)), by, until))
    return tuple(formers)


def read_switch(said: object, *path: str) -> Switching:
    """To what something is switched: a word, or a table. Raises InvalidContracts."""
    if isinstance(said, bool):  # YAML reads on and off as true and false
        said = "on" if said else "off"
    if isinstance(said, str):
        said = {"to": said}
    table = table_at(said, SWITCH_FIELDS, *path)
    to = table.get("to")
    if isinstance(to, bool):
        to = "on" if to else "off"
    if not isinstance(to, str) or to not in WORDS:
        raise InvalidContracts(f"must be {', '.join(map(repr, WORDS))}, not {shown(to)}", *path, "to")
    percent = table.get("percent", 100)  # all of them
    if isinstance(percent, bool) or not isinstance(percent, int | float) or not 0 <= percent <= 100:
        raise InvalidContracts(f"must be a number from 0 to 100, not {shown(percent)}", *path, "percent")
    return Switching(WORDS[to], percent, read_moment(table.get("until"), *path, "until"))


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
    if isinstance(said, int | float) and not isinstance(said, bool):
        seconds: float = said
    elif isinstance(said, str):
        try:
            seconds = seconds_of_iso(said)
        except ValueError as error:
            raise InvalidContracts(f"{shown(said)} {error}", *path) from None
    else:
        raise InvalidContracts(f"must be seconds, or a duration such as P14D, not {shown(said)}", *path)
    if not 0 < seconds <= LASTS_MAX_S:
        raise InvalidContracts(f"{shown(said)} is not between no time and a hundred years", *path)
    return seconds


def read_moment(said: object, *path: str) -> float | None:
    """A moment in seconds since 1970, or None if none is said."""
    if said is None:
        return None
    if isinstance(said, datetime):  # TOML and YAML read them by themselves
        moment = said
    elif isinstance(said, date):
        moment = datetime(said.year, said.month, said.day)  # noqa: DTZ001  # its zone is added below
    elif isinstance(said, str):
        try:
            moment = datetime.fromisoformat(said)
        except ValueError:
            raise InvalidContracts(f"{shown(said)} is no moment like 2026-11-23T12:00:00Z", *path) from None
    else:
        raise InvalidContracts(f"must be a moment like 2026-11-23T12:00:00Z, not {shown(said)}", *path)
    at = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not FIRST_S <= at <= LAST_S:
        raise InvalidContracts(f"{shown(said)} is not between the years 1970 and 9987", *path)
    return at


def check_identity(identity: object, *path: str) -> str:
    """Return `identity` if it can name a customer. Raises InvalidContracts."""
    if not isinstance(identity, str):
        kind = type(identity).__name__
        raise InvalidContracts(f"{shown(identity)} names no customer: a customer is text, not {kind}", *path)
    if not identity or "\x00" in identity:
        raise InvalidContracts(f"{shown(identity)} names no customer: a customer is text without NUL", *path)
    if len(identity.encode("utf-8", "surrogatepass")) > IDENTITY_BYTES_MAX:
        raise InvalidContracts(f"{shown(identity)} is longer than {IDENTITY_BYTES_MAX} bytes", *path)
    return identity


def read_name(name: object, *path: str) -> str:
    """A name of a plan or a limit. Raises InvalidContracts."""
    try:
        return check_name(name)
    except InvalidLimit as error:
        raise InvalidContracts(error.problem, *path, *([name] if isinstance(name, str) else [])) from None


def entries_of(said: object, most: int, *path: str, least: int = 1) -> dict[str, Any]:
    """A table with entries of any names. Raises InvalidContracts if it has too few, or too many."""
    table = table_at(said, None, *path)
    if not least <= len(table) <= most:
        raise InvalidContracts(f"has {len(table)} entries; {least} to {most} are possible", *path)
    return table


def table_at(said: object, known: Sequence[str] | None, *path: str) -> dict[str, Any]:
    """A table of which the fields are known, or all text. A field of which null is said is as if it were not there."""
    if not isinstance(said, dict):
        raise InvalidContracts(f"must be a table, not {shown(said)}", *path)
    for name in said:
        if not isinstance(name, str):
            raise InvalidContracts(f"has the key {shown(name)}, which is no text; put it into quotes", *path)
        if known is not None and name in NO_FIELDS and name not in known:
            raise InvalidContracts(NO_FIELDS[name], *path, name)
        if known is not None and name not in known:
            raise InvalidContracts(
                f"there is no such field; known: {', '.join(known)}{asked(name, known)}", *path, name
            )
    return said if known is None else {name: value for name, value in said.items() if value is not None}
