"""Messages of nodes, a hub and an exporter about usage: periods, rows, batches, events.

Usage is counted for each identity (a customer or client). A node reports it under an account, a name for one start of
its process: always the account's sums so far, not increments. Moments are microseconds of the hub's clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from zlib import crc32

from reconverge.hub.report import WHOLE_MAX

MINUTE: Final = "minute"
HOUR: Final = "hour"
DAY: Final = "day"
MONTH: Final = "month"
KINDS: Final = (MINUTE, HOUR, DAY, MONTH)
"""The kinds of periods, the shortest first. Periods begin and end by UTC."""
LENGTH_MS: Final[Mapping[str, int]] = {MINUTE: 60_000, HOUR: 3_600_000, DAY: 86_400_000, MONTH: 31 * 86_400_000}
"""The longest duration of a period of each kind, in milliseconds."""
AHEAD_MS: Final = 300_000
"""How many milliseconds before a period begins, by the hub's clock, its usage is accepted. Clocks that follow a time
server differ by less; usage dated further ahead comes from a clock that is wrong."""
MONTHS: Final = 12
EPOCH_YEAR: Final = 1970
PAGES: Final = 16
"""The number of pages into which a shard divides the rows of a period, so that a script of a Redis goes through one
page only."""
ROWS_MAX: Final = 4096
"""The most rows of one page at a hub; with 16 pages 65,536 keys of a period in each shard. A script that reads a whole
page of them holds up a Redis for a few milliseconds."""
BATCH_ROWS_MAX: Final = 256
"""The most rows of one batch, about: a Redis on a busy machine took 12 us for each row, so other nodes wait for at most
3 ms."""
EVENTS_MAX: Final = 500
"""The most events that one call issues."""
SEQUENCE_KEPT_MS: Final = 2 * 86_400_000
"""For how many milliseconds a hub remembers the last batch of an account that is silent or gone; no network delays a
message for longer."""
LOAD_KEPT_US: Final = 120 * 1_000_000
"""After this many microseconds without a report of its load, a node counts as gone. The first batch of a new account
makes the hub forget nodes that are gone."""
REGISTERS: Final = 256
"""The size in bytes of a sketch, a HyperLogLog that estimates from how many addresses one identity sends requests. Four
times the size would halve the error."""
SKETCHES_MAX: Final = 5000
"""The most identities of one hour whose addresses a node or a shard counts (1.5 MB); addresses of further identities
are not counted."""
SKETCHES_REPORTED_MAX: Final = 64
"""The most identities in one report of addresses, so that a script of a Redis is over within a few milliseconds."""
SKETCHES_KEPT_HOURS: Final = 2
"""For how many hours after their last change a hub keeps the sketches of an hour."""
SECRET_KEPT_MS: Final = 2 * 86_400_000
"""For how many milliseconds after a node last asked for it a hub keeps the secret with which addresses are hashed."""
OTHERS: Final = "(others)"
"""The identity under which a hub counts usage when it has no room for a further row (a key's usage in a period)."""
_DAYS_TO_MARCH_1970: Final = 365 * 1970 + 1970 // 4 - 1970 // 100 + 1970 // 400
"""The days from the beginning of the calendar that `period_start_s` uses to the first of March 1970."""


class Period(NamedTuple):
    """One minute, hour, day or month, given by its kind and its number, counted from 1970."""

    kind: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind}{self.number}"


class UsageKey(NamedTuple):
    """The three names by which usage is counted: the identity, the limit and the route."""

    identity: str
    limit: str
    route: str


class Counts(NamedTuple):
    """The usage under one key: the cost charged and the numbers of requests."""

    cost: int
    """The cost charged, less the cost that was given back."""
    requests: int
    """The number of requests that were admitted."""
    refused: int
    """The number of requests that were refused, and charged nothing."""


NOTHING: Final = Counts(0, 0, 0)


class UsageRow(NamedTuple):
    """The usage under one key in one period."""

    period: Period
    key: UsageKey
    counts: Counts


class Retention(NamedTuple):
    """How many periods of each kind a hub keeps after their end."""

    minute: int = 180
    hour: int = 960
    """960 hours are 40 days, so that an exporter of hours that was away for a month can catch up."""
    day: int = 92
    month: int = 14

    def keep_ms(self, kind: str) -> int:
        """Returns how long a hub keeps a period of `kind` after the period's last change, in milliseconds.

        That is longer than the time in which records of the period are accepted.
        """
        return (int(getattr(self, kind)) + 1) * LENGTH_MS[kind] + AHEAD_MS


SKETCHES_RETENTION: Final = Retention(hour=SKETCHES_KEPT_HOURS - 1)
"""The retention of address sketches: a hub keeps those of the current hour of its clock, and of the hour before."""


class NodeLoad(NamedTuple):
    """The load of one node, as it has reported it."""

    node: str
    requests_per_s: float
    cost_per_s: float
    at_us: int
    """When the node reported the load, by the hub's clock; 0 in a node's report."""


class UsageBatch(NamedTuple):
    """The counts that one node's account reports to one shard in one message, in at most about BATCH_ROWS_MAX rows."""

    account: str
    """The name of the account, which is new for every start of a process and every fork."""
    shard: int
    sequence: int
    """A number that rises with every batch of this account to this shard; the hub merges no batch with a lower or equal
    number."""
    answered: int
    """The sequence of the last merged batch whose answer the node has received. A hub that knows only an earlier batch
    has lost reports, and merges nothing until the node knows of the loss."""
    rows: Sequence[UsageRow]
    """The account's counts under keys of that shard: sums so far, not increments. The rows of one key for all kinds of
    periods are in the same batch, so that sums over minutes and over months agree even after a crash."""
    kept: Retention
    leaving: Sequence[Period] | None = None
    """In the account's last batch: all periods in which it has rows, none of which it will report again. None in any
    other batch."""
    load: NodeLoad | None = None


class Recorded(NamedTuple):
    """A hub's answer to a batch."""

    known: int
    """The sequence of the last batch of this account that the hub knew before this one; 0 if it knew no batch."""
    merged: bool
    folded: int
    """How many rows of the batch were counted under OTHERS, because the hub has no room for further rows."""
    done: Mapping[str, int]
    """For each kind of period, the number of the last period up to which all usage was exported and delivered."""
    hub_us: int = 0
    """The hub's clock when it answered."""
    refused: Sequence[int] = ()
    """The indexes of the batch's rows that the hub did not count because of their date; see `counted_us`. The hub has
    no counts of this account in these rows, so the account may report them under another date."""


class ExportLease(NamedTuple):
    """The lease of the leading exporter: its name, and until when it leads, by the hub's clock."""

    leads: bool
    """Whether the exporter that has asked is the leader."""
    exporter: str
    until_us: int
    hub_us: int


class AddressReport(NamedTuple):
    """One node's report to one shard about client addresses, of at most SKETCHES_REPORTED_MAX identities.

    A hub accepts the report in the hour that it is about and the next one, by its own clock (see `counted_us`), and
    ignores it later.
    """

    hour: int
    """The number of the hour, counted from 1970 by the node's clock."""
    shard: int
    secret: bytes
    """The secret with which the node hashes addresses; sketches with different secrets are kept apart."""
    risen: Mapping[str, bytes]
    """For each identity, the registers of its sketch that have risen: two bytes for each register, its number and its
    rank."""


class UsageEvent(NamedTuple):
    """One exported amount: the usage under a key in a period, beyond that of earlier events."""

    period: Period
    key: UsageKey
    number: int
    """0 for the first event of a key and period; 1, 2 and so on for events with usage that was recorded later."""
    counts: Counts


class ExportMarks(NamedTuple):
    """How far the export of one kind of periods has come at one shard."""

    first: int | None
    """The first period of that kind in which usage was recorded; None if there is none."""
    closed: int | None
    """The number of the last period for which events may have been issued. Usage recorded in it from then on is late.
    None at first."""
    done: int | None
    """The last period up to which all issued events were confirmed as delivered; None at first."""
    late: Mapping[int, int]
    """The closed periods in which usage was recorded after their last export, by number; each with a mark to pass to
    `finish` when that usage was exported, too."""


def period_start_s(period: Period) -> int:
    """Returns when a period begins, in seconds since 1970."""
    if period.kind != MONTH:
        return period.number * (LENGTH_MS[period.kind] // 1000)
    # Years are counted from March, so that February with its leap day is the last month of a year.
    year, month = divmod(period.number - 2, MONTHS)
    year += EPOCH_YEAR
    leap_days = year // 4 - year // 100 + year // 400
    return (365 * year + leap_days + (153 * month + 2) // 5 - _DAYS_TO_MARCH_1970 + 59) * 86_400


def period_end_s(period: Period) -> int:
    """Returns when a period ends and the next begins, in seconds since 1970."""
    return period_start_s(Period(period.kind, period.number + 1))


def counted_us(period: Period, kept: Retention) -> tuple[int, int]:
    """Returns the two moments of a hub's clock, in microseconds, between which the hub accepts new records of a period.

    An account may replace records that it made in that time later, too: the hub keeps them longer
    (`Retention.keep_ms`).
    """
    last = Period(period.kind, period.number + int(getattr(kept, period.kind)))
    return (period_start_s(period) * 1000 - AHEAD_MS) * 1000, min(period_end_s(last) * 1_000_000, WHOLE_MAX)


def field_of(key: UsageKey) -> bytes:
    """Returns a key in bytes, as hubs store it; its names must not contain NUL."""
    return "\0".join(key).encode("utf-8", "surrogatepass")


def key_of(field: bytes) -> UsageKey:
    """Returns the key that `field_of` made into `field`. Raises ValueError for any other bytes."""
    identity, limit, route = field.decode("utf-8", "surrogatepass").split("\0")
    return UsageKey(identity, limit, route)


def shard_of(identity: str, shards: int) -> int:
    """Returns the number of the shard that keeps an identity's usage; it is the same on all nodes."""
    return crc32(identity.encode("utf-8", "surrogatepass")) % shards


def page_of(field: bytes) -> int:
    """Returns the number of the page, within a shard, that keeps the usage key whose bytes (`field_of`) are `field`."""
    return crc32(field) % PAGES


def others_route(shard: int, page: int) -> str:
    """Returns the name of the route under which a hub counts the usage that finds no room in a full page.

    Each page of each shard has a name of its own, so that no two rows of a fleet have the same key.
    """
    return f"(hub {shard}.{page})"
