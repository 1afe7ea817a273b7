"""Checks the options of `reconverge contracts plan`: columns, moments, and how much may be refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Final

from reconverge.cli.contracts.recording import MOMENT_MAX_S, RecordingColumns, Span
from reconverge.clock import SECOND_NS
from reconverge.contracts.central import EVERY_LIMIT
from reconverge.contracts.model import CUSTOMER, Document
from reconverge.errors import InvalidSetting, asked
from reconverge.limit.limit import Limit

SETTLE_AFTER_S: Final = 5.0
"""The default duration of a request, as in `reconverge replay`."""
SETTLE_AFTER_MAX_S: Final = 86_400.0
PERCENT_MAX: Final = 100
_MOST: Final = re.compile(r"(?P<number>\d{1,15})|(?P<percent>\d{1,15}(?:\.\d{1,15})?)%")


def facts_in(texts: Sequence[str]) -> dict[str, str]:
    """Reads options of the form FACT=COLUMN. Returns the column of each fact. Raises InvalidSetting."""
    facts: dict[str, str] = {}
    for text in texts:
        name, _, column = text.partition("=")
        if not name.isidentifier() or not column:
            raise InvalidSetting("fact", text, "is not FACT=COLUMN, such as user=login")
        if name == CUSTOMER:
            raise InvalidSetting("fact", text, "is given by --customer already; leave it out")
        if name in facts:
            raise InvalidSetting(
                "fact", text, f"gives the fact {name} again, which has the column {facts[name]!r}; leave one out"
            )
        facts[name] = column
    return facts


def of_limits(setting: str, texts: Sequence[str] | None) -> dict[str, str]:
    """Reads options of the form COLUMN or LIMIT=COLUMN. Returns the column of each limit, by name.

    COLUMN alone is for all limits, under the name EVERY_LIMIT. Raises InvalidSetting, which names `setting`.
    """
    columns: dict[str, str] = {}
    for text in texts or ():
        limit, _, column = text.partition("=") if "=" in text else (EVERY_LIMIT, "", text)
        if not limit or not column:
            raise InvalidSetting(setting, text, "is neither COLUMN nor LIMIT=COLUMN, such as tokens=context_tokens")
        if limit in columns:
            raise InvalidSetting(
                setting, text, f"is a second column beside {columns[limit]!r} for the same limits; leave one out"
            )
        columns[limit] = column
    return columns


def most_refused(text: str, requests: int) -> Fraction:
    """Returns how many requests may be newly refused: `text` is that number, or a percentage of all `requests`.

    Raises InvalidSetting.
    """
    match = _MOST.fullmatch(text.strip())
    if match is None:
        raise InvalidSetting(
            "max_newly_refused", text, "is neither a number of requests, like 100, nor a percentage, like 0.1%"
        )
    if match["percent"] is None:
        return Fraction(match["number"])
    part = Fraction(match["percent"])
    if part > PERCENT_MAX:
        raise InvalidSetting("max_newly_refused", text, f"is more than all requests; give at most {PERCENT_MAX}%")
    return requests * part / PERCENT_MAX


def settle_after_ns(settle_after: float | None, columns: RecordingColumns) -> int:
    """Returns how long a request takes, in nanoseconds: after that, the costs of --settle are charged.

    Raises InvalidSetting for an invalid time, and for one without effect, as there is no --settle.
    """
    if settle_after is None:
        return round(SETTLE_AFTER_S * SECOND_NS)
    if not columns.settles:
        raise InvalidSetting("settle_after", settle_after, "has no effect without --settle; add it, or leave this out")
    if not 0 < settle_after <= SETTLE_AFTER_MAX_S:
        raise InvalidSetting("settle_after", settle_after, f"must be above 0 and at most {SETTLE_AFTER_MAX_S:g}")
    return round(settle_after * SECOND_NS)


def check_used(columns: RecordingColumns, documents: Sequence[Document]) -> None:
    """Raises InvalidSetting for a column that would have no effect, because no limit uses it."""
    named = [pair for document in documents for pair in _limits_of(document)]
    facts = {fact for document in documents for fact in _facts_of(document)} - {CUSTOMER}
    for fact, column in columns.facts.items():
        if fact not in facts:
            known = ", ".join(sorted(facts)) or "the customer alone"
            problem = f"no limit counts by this fact; limits count by {known}{asked(fact, facts)}"
            raise InvalidSetting("fact", f"{fact}={column}", problem)
    limits = {name for name, _ in named}
    for setting, amounts in (("cost", columns.costs), ("settle", columns.settles)):
        for limit, column in amounts.items():
            if limit not in (EVERY_LIMIT, *limits):
                problem = f"there is no such limit; known: {', '.join(sorted(limits))}{asked(limit, limits)}"
                raise InvalidSetting(setting, f"{limit}={column}", problem)
    if columns.kind is not None and all(limit.costs is None for _, limit in named):
        raise InvalidSetting(
            "kind", columns.kind, "names a column of kinds, but no limit has costs by kind; leave it out"
        )


def _limits_of(document: Document) -> Iterator[tuple[str, Limit]]:
    for plan in document.plans.values():
        yield from ((name, each.limit) for name, each in plan.limits.items())
    for customer in document.customers.values():
        yield from ((name, each) for name, each in customer.limits.items() if isinstance(each, Limit))
        yield from ((former.name, former.limit) for former in customer.former)


def _facts_of(document: Document) -> Iterator[str]:
    for plan in document.plans.values():
        for each in plan.limits.values():
            yield from each.by
    for customer in document.customers.values():
        for former in customer.former:
            yield from former.by


def _names_moments(document: Document) -> bool:
    """Whether the contracts in a document depend on the date: a plan or a switch begins or ends at some moment."""
    switches = [each.switch for plan in document.plans.values() for each in plan.limits.values()]
    for customer in document.customers.values():
        if customer.since is not None or customer.until is not None or customer.former:
            return True
        switches += [customer.switch, *customer.switches.values()]
    return any(switch is not None and switch.until is not None for switch in switches)


def when_it_began_s(began: str | None, span: Span, documents: Sequence[Document]) -> float:
    """Returns the date of the recording's time 0, in seconds since 1970; 0.0 if the times need no date.

    Raises InvalidSetting if the contracts need a date that is missing, or `began` is invalid or has no effect.
    """
    if began is None:
        if not span.since_1970 and any(_names_moments(document) for document in documents):
            raise InvalidSetting(
                "began",
                None,
                "the contracts name moments, but the recording's times are no dates and begin with "
                f"{span.first_s:.15g}; give the date of time 0, such as 2026-11-23T12:00:00Z",
            )
        return 0.0
    if span.since_1970:
        problem = (
            f"has no effect, as the recording's times are since 1970 already, from {span.first_s:.15g} on; leave it out"
        )
        raise InvalidSetting("began", began, problem)
    try:
        moment = datetime.fromisoformat(began)
    except ValueError:
        raise InvalidSetting("began", began, "is no moment like 2026-11-23T12:00:00Z") from None
    began_s = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not 0 <= began_s <= MOMENT_MAX_S - span.last_s:
        raise InvalidSetting(
            "began", began, "is before 1970, or lets the recording end after 2100; give a moment between"
        )
    return began_s
