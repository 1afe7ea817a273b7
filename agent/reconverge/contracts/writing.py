"""Converts a contracts document to plain dicts, lists and texts, as for JSON or YAML; `checked` converts it back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from reconverge.clock import SECOND_NS
from reconverge.contracts.model import (
    CUSTOMER,
    PLAIN_LIMIT_FIELDS,
    Customer,
    Document,
    Former,
    Plan,
    PlanLimit,
    Switching,
)
from reconverge.limit.limit import SLOT_LEASE_S, Limit

TEXTS_MAX: Final = 1024
"""The number of limit strings whose parsed limits are cached: plans use a few strings, each of them many times."""


def table_of(document: Document) -> dict[str, Any]:
    """Returns a document as a dict of plain values, without fields that are not set; `checked` reads it back."""
    return {
        "unknown": document.unknown,
        "plans": {name: _said_of_plan(plan) for name, plan in document.plans.items()},
        "customers": {identity: table_of_customer(each) for identity, each in document.customers.items()},
    }


def table_of_customer(customer: Customer) -> dict[str, Any]:
    """Returns the contract of one customer as a dict of plain values, without fields that are not set."""
    said: dict[str, Any] = {"plan": customer.plan}
    if customer.limits:
        said["limits"] = {
            name: each if isinstance(each, str) else _whole(each) for name, each in customer.limits.items()
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


def _whole(limit: Limit) -> dict[str, Any]:
    """Returns a customer's own limit as a dict, in which form it replaces the plan's limit as a whole.

    A limit string over the same window as the plan's limit would change only quota and burst.
    """
    said = said_of_limit(limit)
    return {"limit": said} if isinstance(said, str) else said


def said_of_limit(limit: Limit) -> str | dict[str, Any]:
    """Returns a limit as a document has it: as a limit string if that suffices, else as a dict with further fields."""
    text = _limit_string(limit)
    by_text = _limit_of(text)
    said = {
        name: _plain(getattr(limit, name))
        for name in PLAIN_LIMIT_FIELDS
        if getattr(limit, name) != getattr(by_text, name, None)
    }
    return {"limit": text, **said} if said else text


@lru_cache(TEXTS_MAX)
def _limit_of(text: str) -> Limit:
    return Limit.parse(text)


def written_moment(moment: float) -> str:
    """Returns a moment, given in seconds since 1970, as text in ISO 8601 and UTC."""
    return datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z")


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
    if limit.slots:
        lease = "" if limit.lease == SLOT_LEASE_S else f" lease {limit.window_ns // 1_000_000}ms"
        return f"{limit.quota} in flight{lease}"
    window_s = limit.window_ns / SECOND_NS
    window = f"{window_s:.0f}s" if window_s.is_integer() else f"{limit.window_ns // 1_000_000}ms"
    burst = "" if limit.burst is None else f" burst {limit.burst}"
    warmup = "" if limit.warmup is None else f" warmup {round(limit.warmup * 1000)}ms"
    return f"{limit.quota}/{window}{burst}{warmup}"


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else value
