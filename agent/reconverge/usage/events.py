"""Converts usage events to formats of other systems: CloudEvents 1.0, Stripe's meter events, JSON lines, CSV."""

# The id of an event is a hash of its namespace, limit, identity, route, period and number, and of nothing else. So an
# event that is delivered twice has the same id both times, and two events never share an id. The id has 40 digits;
# Stripe accepts identifiers of up to 100 characters. Each event contains the moment at which its period begins, so that
# a receiver counts the event in the right period, however late it comes.

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import quote

from reconverge.errors import InvalidSetting
from reconverge.hub.usage import UsageEvent
from reconverge.usage.periods import period_end_s, period_name, period_start_s

TYPE: Final = "reconverge.usage"
ID_BYTES: Final = 20
EVENT_NAME_MAX: Final = 100
"""The longest `event_name` that Stripe accepts."""
COLUMNS: Final = (
    "id", "namespace", "period", "start", "end", "identity", "limit", "route", "number", "cost", "requests", "refused",
)  # fmt: skip


def event_id(namespace: str, event: UsageEvent) -> str:
    """Returns an event's identifier, 40 hexadecimal digits, which is the same for every delivery of the event."""
    period, key = event.period, event.key
    said = json.dumps([namespace, key.limit, key.identity, key.route, period.kind, period.number, event.number])
    return blake2b(said.encode(), digest_size=ID_BYTES).hexdigest()


def cloud_event(namespace: str, event: UsageEvent, *, type: str = TYPE) -> dict[str, Any]:  # noqa: A002  # its name there
    """Returns an event as CloudEvents 1.0 in JSON; OpenMeter, Kong and others accept it unchanged.

    The subject is the identity; it is left out if the identity is empty, as CloudEvents allows no empty subject.
    """
    said: dict[str, Any] = {
        "specversion": "1.0",
        "type": type,
        "source": f"reconverge/{quote(namespace, safe='')}",
        "id": event_id(namespace, event),
        "time": _moment(period_start_s(event.period)),
        "datacontenttype": "application/json",
        "data": {
            "identity": event.key.identity,
            "limit": event.key.limit,
            "route": event.key.route,
            "period": event.period.kind,
            "start": _moment(period_start_s(event.period)),
            "end": _moment(period_end_s(event.period)),
            "number": event.number,
            **event.counts._asdict(),
        },
    }
    if event.key.identity:
        said["subject"] = event.key.identity
    return said


def stripe_meter_event(
    namespace: str,
    event: UsageEvent,
    *,
    event_name: str,
    customer: Callable[[str], str] = str,
    value: str = "cost",
) -> dict[str, Any]:
    """Returns the parameters with which a program creates Stripe's `billing.meter_events` for an event.

    Stripe recognizes repeated identifiers for at least 24 hours, and takes no event older than 35 days: repeat a
    delivery within one day, and export months at most four days after they end.

    Args:
        namespace: the namespace of the fleet.
        event: the usage event to bill.
        event_name: the name of the meter at Stripe.
        customer: returns the Stripe customer of an identity; by default the identity itself.
        value: the number to bill: cost, requests or refused.

    Raises:
        InvalidSetting: the event name is empty or too long, or `value` is none of these numbers.
    """
    counts = event.counts._asdict()
    if value not in counts:
        raise InvalidSetting("value", value, f"is none of {', '.join(counts)}")
    if not 0 < len(event_name) <= EVENT_NAME_MAX:
        raise InvalidSetting(
            "event_name", event_name, f"must have 1 to {EVENT_NAME_MAX} characters, not {len(event_name)}"
        )
    return {
        "event_name": event_name,
        "identifier": event_id(namespace, event),
        "timestamp": period_start_s(event.period),
        "payload": {"stripe_customer_id": customer(event.key.identity), "value": str(counts[value])},
    }


def json_lines(namespace: str, events: Iterable[UsageEvent]) -> str:
    """Returns the events as JSON lines, each in the form of `row_of`."""
    return "".join(json.dumps(row_of(namespace, event)) + "\n" for event in events)


def csv_lines(namespace: str, events: Iterable[UsageEvent], *, header: bool = False) -> str:
    """Returns the events as lines of CSV, in the order of COLUMNS, after a line of column names if `header` is set.

    A name that a spreadsheet would take for a formula gets an apostrophe before it, and a character that UTF-8 cannot
    encode is written as its number.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if header:
        writer.writerow(COLUMNS)
    writer.writerows([_plain(each) for each in row_of(namespace, event).values()] for event in events)
    return text.getvalue().encode("utf-8", "backslashreplace").decode()


def row_of(namespace: str, event: UsageEvent) -> dict[str, str | int]:
    """Returns an event as a flat dictionary, whose keys are the names in COLUMNS."""
    period, key = event.period, event.key
    values = (
        event_id(namespace, event),
        namespace,
        period_name(period),
        _moment(period_start_s(period)),
        _moment(period_end_s(period)),
        *key,
        event.number,
        *event.counts,
    )
    return dict(zip(COLUMNS, values, strict=True))


def _plain(value: str | int) -> str | int:
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def _moment(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
