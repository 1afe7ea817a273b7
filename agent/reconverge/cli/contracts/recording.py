"""Reads the requests of a recording in the order of their times, with the facts by which contracts' limits count."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from reconverge.cli.replay.trace import (
    ALL,
    SHARED_KEY,
    TIME,
    InvalidTrace,
    Row,
    amount_in,
    each_row,
    field_in,
    key_in,
    moment_s_in,
)
from reconverge.clock import SECOND_NS
from reconverge.contracts.central import CustomerRequest, Shape

MOMENT_MAX_S: Final = 4_102_444_800
"""The latest moment of a recording, the year 2100. A later one is a mistake, such as milliseconds for seconds."""
SINCE_1970_MIN_S: Final = 978_307_200
"""The year 2001, in seconds since 1970. Smaller times count from the beginning of the recording."""


@dataclass(frozen=True, slots=True)
class RecordingColumns:
    """The names of the columns of a recording: of the customer, the facts, the costs, and the kind of request."""

    customer: str = SHARED_KEY
    facts: Mapping[str, str] = field(default_factory=dict[str, str])
    """The columns of facts, by the name of the fact."""
    costs: Mapping[str, str] = field(default_factory=dict[str, str])
    """The columns of costs, by the name of the limit or EVERY_LIMIT."""
    settles: Mapping[str, str] = field(default_factory=dict[str, str])
    """The columns of settled costs, by the name of the limit or EVERY_LIMIT."""
    kind: str | None = None

    def needed(self) -> list[str]:
        """Returns the names of the columns that the recording must have: the time, and all columns that are set."""
        customer = [] if self.customer == SHARED_KEY else [self.customer]
        kind = [] if self.kind is None else [self.kind]
        return [TIME, *customer, *self.facts.values(), *self.costs.values(), *self.settles.values(), *kind]

    def shape(self, *, settle_after_ns: int, ends_ns: int) -> Shape:
        """Returns the `Shape` of the requests that `requests_in` reads: the meaning of their values."""
        facts, costs, settles = tuple(self.facts), tuple(self.costs), tuple(self.settles)
        return Shape(facts, costs, settles, settle_after_ns=settle_after_ns, ends_ns=ends_ns)


@dataclass(frozen=True, slots=True)
class Span:
    """The number of requests in a recording, and the first and the last moment by the recording's own times."""

    requests: int
    first_s: float
    last_s: float

    @property
    def since_1970(self) -> bool:
        """Whether the times of the recording are seconds since 1970, so that they have a date."""
        return self.first_s >= SINCE_1970_MIN_S


def span_of(path: Path, columns: RecordingColumns) -> Span:
    """Reads a whole recording. Returns the number of its requests, and its first and last moment.

    Raises:
        InvalidTrace: the file cannot be opened or read twice, lacks a column, has an invalid time, or is not sorted by
            time.
    """
    if path.exists() and not path.is_file():
        raise InvalidTrace(
            path, "is no file; a recording is read twice, so it cannot come out of a pipe; save it to a file first"
        )
    first_s = last_s = 0.0
    requests = 0

    def look(row: Row) -> float:
        moment_s = moment_s_in(row)
        if not 0 <= moment_s <= MOMENT_MAX_S:
            raise ValueError(f"{TIME} is {row[TIME]}, which is not between 0 and {MOMENT_MAX_S} seconds")
        if requests and moment_s < last_s:
            raise ValueError(f"{TIME} is {row[TIME]}, before the {last_s:.15g} of an earlier line; sort it by {TIME}")
        return moment_s

    for last_s in each_row(path, columns.needed(), look):
        first_s = first_s if requests else last_s
        requests += 1
    return Span(requests, first_s, last_s)


def requests_in(path: Path, columns: RecordingColumns, began_s: float) -> Iterator[CustomerRequest]:
    """Yields the requests of a recording. Raises InvalidTrace.

    `began_s` is the date of the recording's time 0, in seconds since 1970.
    """
    began_ns = round(began_s * SECOND_NS)
    facts, costs, settles = (tuple(each.values()) for each in (columns.facts, columns.costs, columns.settles))
    customer_in = _customer_in(columns.customer)

    def parse(row: Row) -> CustomerRequest:
        return CustomerRequest(
            moment_ns=began_ns + round(moment_s_in(row) * SECOND_NS),
            customer=customer_in(row),
            facts=tuple([key_in(row, name) for name in facts]),
            costs=tuple([amount_in(row, name) for name in costs]),
            settles=tuple([amount_in(row, name) for name in settles]),
            kind=None if columns.kind is None else field_in(row, columns.kind),
        )

    return each_row(path, columns.needed(), parse)


def _customer_in(column: str) -> Callable[[Row], str]:
    if column == SHARED_KEY:
        return lambda _row: ALL
    return lambda row: key_in(row, column)
